// Reductions over any set of axes: sum, prod, amax, amin, any, all.
//
// Neighbouring axes of one kind are merged; then groups of axes are folded one after the other,
// innermost first. Long folds are cut into segments whose length follows from the shape, so the
// order of the arithmetic never depends on the number of threads.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/reduction_loops.h"
#include "backends/cpu/threads/team.h"
#include "support/half.h"

namespace lucid::cpu {

FoldLoops fold_loops(FoldKind kind, DType dtype) {
  return LUCID_ISA_CALL(active_isa(), fold_loops(kind, dtype));
}

DType fold_dtype(FoldKind kind, DType dtype) {
  if (kind == FoldKind::kAny || kind == FoldKind::kAll) return DType::kBool;
  return is_half(dtype) ? DType::kFloat32 : dtype;
}

namespace {

/// Elements of one task in a fold over contiguous elements.
constexpr int64_t kSegment = 65536;
/// Rows above which a fold of columns is cut into groups, and the most groups there are.
constexpr int64_t kGroupRows = 1024;
constexpr int64_t kMaxGroups = 32;
constexpr int64_t kRowUnit = 256;
constexpr int64_t kColumnBlock = 256;
constexpr double kNsPerByte = 0.05;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// (outer, length, inner) -> (outer, segments, inner): folds segments of the middle axis.
struct Stage {
  int64_t outer;
  int64_t length;
  int64_t inner;
  int64_t segment;
  FoldLoops loops;
  int64_t in_bytes;
  int64_t out_bytes;

  int64_t segments() const { return ceil_div(length, segment); }
  int64_t num_results() const { return outer * segments() * inner; }
  void run(const void* x, void* out) const;

 private:
  void run_rows(const char* x, char* out) const;
  void run_columns(const char* x, char* out) const;
};

void Stage::run(const void* x, void* out) const {
  if (inner == 1) return run_rows(static_cast<const char*>(x), static_cast<char*>(out));
  run_columns(static_cast<const char*>(x), static_cast<char*>(out));
}

void Stage::run_rows(const char* x, char* out) const {
  const double row_ns = static_cast<double>(segment * in_bytes) * kNsPerByte + 10;
  if (segment == length) {
    const int64_t grain = std::max<int64_t>(1, kSegment / 4 / std::max<int64_t>(length, 16));
    parallel_for(outer, grain, row_ns, [&](int64_t begin, int64_t end) {
      loops.rows(x + begin * length * in_bytes, end - begin, length, out + begin * out_bytes);
    });
    return;
  }
  const int64_t per_row = segments();
  parallel_for(outer * per_row, 1, row_ns, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t row = task / per_row;
      const int64_t start = task % per_row * segment;
      loops.rows(x + (row * length + start) * in_bytes, 1, std::min(segment, length - start),
                 out + task * out_bytes);
    }
  });
}

void Stage::run_columns(const char* x, char* out) const {
  const int64_t blocks = ceil_div(inner, kColumnBlock);
  const int64_t per_outer = segments();
  const double task_ns =
      static_cast<double>(segment * std::min(inner, kColumnBlock) * in_bytes) * kNsPerByte + 10;
  parallel_for(outer * per_outer * blocks, 1, task_ns, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t block = task % blocks * kColumnBlock;
      const int64_t result = task / blocks;
      const int64_t start = result % per_outer * segment;
      const int64_t first_row = result / per_outer * length + start;
      loops.columns(x + (first_row * inner + block) * in_bytes, std::min(segment, length - start),
                    inner, std::min(kColumnBlock, inner - block),
                    out + (result * inner + block) * out_bytes);
    }
  });
}

/// Length of the pieces in which (outer, length, inner) is folded; a function of the shape alone.
int64_t segment_length(int64_t outer, int64_t length, int64_t inner) {
  if (inner == 1) return std::min(length, kSegment);
  const bool enough_columns = outer * ceil_div(inner, kColumnBlock) >= kMaxGroups;
  if (length <= kGroupRows || enough_columns) return length;
  return kRowUnit * ceil_div(length, kRowUnit * kMaxGroups);
}

struct AxisGroup {
  int64_t size;
  bool reduced;
};

/// Axes without those of size 1, neighbours of one kind merged.
std::vector<AxisGroup> group_axes(const Shape& shape, const ir::Ints& dims) {
  std::vector<AxisGroup> groups;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    const bool reduced = std::ranges::find(dims, axis) != dims.end();
    if (!groups.empty() && groups.back().reduced == reduced) {
      groups.back().size *= shape[axis];
    } else {
      groups.push_back({shape[axis], reduced});
    }
  }
  const bool any_reduced =
      std::ranges::any_of(groups, [](const AxisGroup& group) { return group.reduced; });
  if (!any_reduced) groups.push_back({1, true});
  return groups;
}

std::vector<Stage> plan_stages(FoldKind kind, DType dtype, std::vector<AxisGroup> groups) {
  std::vector<Stage> stages;
  const DType kept = fold_dtype(kind, dtype);
  DType source = dtype;
  int64_t inner = 1;
  while (!groups.empty()) {
    const AxisGroup group = groups.back();
    groups.pop_back();
    if (!group.reduced) {
      inner *= group.size;
      continue;
    }
    int64_t outer = 1;
    for (const AxisGroup& rest : groups) outer *= rest.size;
    int64_t length = group.size;
    do {
      stages.push_back({outer, length, inner, segment_length(outer, length, inner),
                        fold_loops(kind, source), size_bytes(source), size_bytes(kept)});
      source = kept;
      length = stages.back().segments();
    } while (length > 1);
  }
  return stages;
}

void narrow(const float* source, int64_t count, DType dtype, void* target) {
  if (dtype == DType::kFloat16) {
    auto* out = static_cast<Float16*>(target);
    for (int64_t i = 0; i < count; ++i) out[i] = to_float16(source[i]);
    return;
  }
  auto* out = static_cast<BFloat16*>(target);
  for (int64_t i = 0; i < count; ++i) out[i] = to_bfloat16(source[i]);
}

class Reduction final : public Kernel {
 public:
  Reduction(std::vector<Stage> stages, DType kept, DType result)
      : stages_(std::move(stages)), kept_(kept), result_(result) {}

  size_t scratch_bytes() const override {
    size_t bytes = 0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (s + 1 < stages_.size() || kept_ != result_) bytes += buffer_bytes(stages_[s]);
    }
    return bytes;
  }

  void run(const RunContext& context) const override {
    const void* source = context.inputs[0];
    char* buffer = static_cast<char*>(context.scratch);
    for (size_t s = 0; s < stages_.size(); ++s) {
      const bool direct = s + 1 == stages_.size() && kept_ == result_;
      void* target = direct ? context.outputs[0] : buffer;
      stages_[s].run(source, target);
      source = target;
      if (!direct) buffer += buffer_bytes(stages_[s]);
    }
    if (kept_ != result_) {
      narrow(static_cast<const float*>(source), stages_.back().num_results(), result_,
             context.outputs[0]);
    }
  }

 private:
  static size_t buffer_bytes(const Stage& stage) {
    return static_cast<size_t>(ceil_div(stage.num_results() * stage.out_bytes, 64) * 64);
  }

  std::vector<Stage> stages_;
  DType kept_;
  DType result_;
};

/// Bytes of 1 in a dtype that prod or all may have.
template <class T>
void fill_ones(void* out, int64_t count, T one) {
  std::fill_n(static_cast<T*>(out), count, one);
}

void fill_one(void* out, int64_t count, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return fill_ones<uint16_t>(out, count, to_float16(1.0f).bits);
    case DType::kBFloat16:
      return fill_ones<uint16_t>(out, count, to_bfloat16(1.0f).bits);
    case DType::kFloat32:
      return fill_ones<float>(out, count, 1.0f);
    case DType::kFloat64:
      return fill_ones<double>(out, count, 1.0);
    case DType::kInt16:
      return fill_ones<int16_t>(out, count, 1);
    case DType::kInt32:
      return fill_ones<int32_t>(out, count, 1);
    case DType::kInt64:
      return fill_ones<int64_t>(out, count, 1);
    default:
      return fill_ones<uint8_t>(out, count, 1);
  }
}

/// A reduction over no elements, or one that has no results.
std::unique_ptr<Kernel> make_empty(FoldKind kind, const ir::ValueType& type) {
  return kernel([kind, type](const RunContext& context) {
    if (type.num_elements() == 0) return;
    if (kind == FoldKind::kProduct || kind == FoldKind::kAll) {
      return fill_one(context.outputs[0], type.num_elements(), type.dtype);
    }
    std::memset(context.outputs[0], 0, static_cast<size_t>(type.size_bytes()));
  });
}

template <FoldKind kKind>
std::unique_ptr<Kernel> make_reduction(const NodeView& view) {
  const ir::ValueType& x = view.input(0);
  const ir::ValueType& out = view.output(0);
  const ir::Ints& dims = view.node.ints("dims");
  const bool is_empty =
      std::ranges::any_of(dims, [&](int64_t dim) { return x.shape[static_cast<int>(dim)] == 0; });
  const std::string op(view.node.op->name);
  if (is_empty && (kKind == FoldKind::kMaximum || kKind == FoldKind::kMinimum)) {
    throw Error(ErrorKind::kUser, op + ": reduction over zero elements has no value");
  }
  if (is_empty || out.num_elements() == 0) return make_empty(kKind, out);
  if (fold_loops(kKind, x.dtype).rows == nullptr) {
    throw Error(ErrorKind::kUnsupported,
                op + ": no cpu kernel for " + std::string(name(x.dtype)) + "; cast it first");
  }
  return std::make_unique<Reduction>(plan_stages(kKind, x.dtype, group_axes(x.shape, dims)),
                                     fold_dtype(kKind, x.dtype), out.dtype);
}

/// True if an element has an exponent of ones, which inf and nan have. No early way out: the loop
/// becomes vector code.
template <class Bits>
bool has_non_finite(const char* x, int64_t begin, int64_t end, Bits exponent) {
  Bits found = 0;
  for (int64_t i = begin; i < end; ++i) {
    Bits bits;
    std::memcpy(&bits, x + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    found = static_cast<Bits>(found | static_cast<Bits>((bits & exponent) == exponent));
  }
  return found != 0;
}

bool has_non_finite(const char* x, int64_t begin, int64_t end, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return has_non_finite<uint16_t>(x, begin, end, 0x7c00);
    case DType::kBFloat16:
      return has_non_finite<uint16_t>(x, begin, end, 0x7f80);
    case DType::kFloat64:
      return has_non_finite<uint64_t>(x, begin, end, 0x7ff0000000000000);
    default:
      return has_non_finite<uint32_t>(x, begin, end, 0x7f800000);
  }
}

std::unique_ptr<Kernel> make_all_finite(const NodeView& view) {
  std::vector<ir::ValueType> types;
  for (size_t i = 0; i < view.num_inputs(); ++i) types.push_back(view.input(i));
  return kernel([types](const RunContext& context) {
    std::atomic<bool> found = false;
    for (size_t i = 0; i < types.size() && !found; ++i) {
      const DType dtype = types[i].dtype;
      const char* x = static_cast<const char*>(context.inputs[i]);
      const double element_ns = static_cast<double>(size_bytes(dtype)) * kNsPerByte;
      parallel_for(types[i].num_elements(), kSegment / 4, element_ns,
                   [&](int64_t begin, int64_t end) {
                     if (has_non_finite(x, begin, end, dtype)) found = true;
                   });
    }
    *context.out<bool>(0) = !found;
  });
}

constexpr KernelRow kRows[] = {
    {"all_finite", make_all_finite},
    {"sum", make_reduction<FoldKind::kSum>},
    {"prod", make_reduction<FoldKind::kProduct>},
    {"amax", make_reduction<FoldKind::kMaximum>},
    {"amin", make_reduction<FoldKind::kMinimum>},
    {"any", make_reduction<FoldKind::kAny>},
    {"all", make_reduction<FoldKind::kAll>},
};

}  // namespace

std::span<const KernelRow> reduction_kernels() { return kRows; }

}  // namespace lucid::cpu
