// Random kernels: counter-based, so that an element depends on the generator's state and its index
// alone. simd/random.h defines which words an element uses and how.
#include "backends/cpu/simd/random.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels/families.h"
#include "backends/cpu/simd/tile.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kTile = 2048;  // elements drawn at a time; a multiple of 4
constexpr double kDrawNs = 1.5;

/// The generator's words for a node.
struct Stream {
  RandomFunctions functions = random_functions(active_isa());
  size_t rng_input;
  size_t offset_attr;

  Stream(const NodeView& view, size_t rng)
      : rng_input(rng), offset_attr(static_cast<size_t>(view.node.op->attr_index("offset"))) {}

  /// Words of the elements [begin, begin + count), and the rest of the last block.
  void draw(const RunContext& context, int64_t begin, int64_t count, uint32_t* words) const {
    const int64_t* state = context.in<int64_t>(rng_input);
    const int64_t offset = std::get<int64_t>((*context.attrs)[offset_attr]);
    const uint64_t counter = static_cast<uint64_t>(state[1]) + static_cast<uint64_t>(offset) +
                             static_cast<uint64_t>(begin / 4);
    functions.words(static_cast<uint64_t>(state[0]), counter, (count + 3) / 4, words);
  }
};

/// Words of one tile. Functions that work on pairs read and write up to the next even count.
struct Words {
  alignas(64) uint32_t data[kTile];
};

int64_t even(int64_t count) { return count + count % 2; }

/// Kernel that draws values of T tile by tile and converts them to the output's dtype.
/// `values(functions, words, count, out)` makes an even number of them.
template <class T, class Values>
std::unique_ptr<Kernel> draw_kernel(const NodeView& view, DType drawn, Values values) {
  const ir::ValueType& output = view.output(0);
  const Stream stream(view, 0);
  const TileFn convert = find_cast(drawn, output.dtype);
  const int64_t item_bytes = size_bytes(output.dtype);
  const int64_t count = output.num_elements();
  return kernel([=](const RunContext& context) {
    parallel_for(count, kTile, kDrawNs, [&](int64_t begin, int64_t end) {
      Words words;
      alignas(64) T drawn_values[kTile];
      stream.draw(context, begin, end - begin, words.data);
      values(stream.functions, words.data, even(end - begin), drawn_values);
      const void* input = drawn_values;
      convert(&input, context.out<char>(0) + begin * item_bytes, end - begin, nullptr);
    });
  });
}

std::unique_ptr<Kernel> make_uniform(const NodeView& view) {
  const DType dtype = view.output(0).dtype;
  if (dtype == DType::kFloat64) {
    return draw_kernel<double>(
        view, DType::kFloat64,
        [](const RandomFunctions& functions, const uint32_t* words, int64_t count, double* out) {
          functions.uniform_double(words, count, out);
        });
  }
  const int digits = dtype == DType::kFloat16 ? 11 : dtype == DType::kBFloat16 ? 8 : 24;
  return draw_kernel<float>(
      view, DType::kFloat32,
      [digits](const RandomFunctions& functions, const uint32_t* words, int64_t count, float* out) {
        functions.uniform_float(words, count, digits, out);
      });
}

std::unique_ptr<Kernel> make_normal(const NodeView& view) {
  return draw_kernel<double>(
      view, DType::kFloat64,
      [](const RandomFunctions& functions, const uint32_t* words, int64_t count, double* out) {
        functions.normal(words, count, out);
      });
}

std::unique_ptr<Kernel> make_random_int(const NodeView& view) {
  const int64_t low = view.node.integer("low");
  const uint64_t range =
      static_cast<uint64_t>(view.node.integer("high")) - static_cast<uint64_t>(low);
  return draw_kernel<int64_t>(
      view, DType::kInt64,
      [low, range](const RandomFunctions& functions, const uint32_t* words, int64_t count,
                   int64_t* out) { functions.integers(words, count, low, range, out); });
}

/// dropout as tiles: mask, product with the scale, selection.
class DropoutKernel final : public Kernel {
 public:
  explicit DropoutKernel(const NodeView& view)
      : stream_(view, 1),
        multiply_(find_tile("mul", view.input(0).dtype)),
        select_(find_tile("where", view.input(0).dtype)),
        item_bytes_(size_bytes(view.input(0).dtype)),
        count_(view.input(0).num_elements()) {
    const double probability = view.node.real("p");
    // uniform >= p of the 24-bit uniforms, in integers.
    threshold_ = static_cast<uint32_t>(std::ceil(probability * 0x1p24));
    const double scale = probability < 1.0 ? 1.0 / (1.0 - probability) : 0.0;
    alignas(8) char element[8];
    const void* source = &scale;
    find_cast(DType::kFloat64, view.input(0).dtype)(&source, element, 1, nullptr);
    for (int64_t i = 0; i < kTile; ++i)
      std::copy_n(element, item_bytes_, scales_ + i * item_bytes_);
  }

  void run(const RunContext& context) const override {
    parallel_for(count_, kTile, kDrawNs,
                 [&](int64_t begin, int64_t end) { run_tile(context, begin, end - begin); });
  }

 private:
  void run_tile(const RunContext& context, int64_t begin, int64_t count) const {
    Words words;
    alignas(64) char scaled[kTile * sizeof(double)];
    alignas(64) static constexpr char kZeros[kTile * sizeof(double)] = {};
    stream_.draw(context, begin, count, words.data);
    bool* mask = context.out<bool>(1) + begin;
    stream_.functions.keep(words.data, count, threshold_, mask);
    const void* factors[2] = {context.in<char>(0) + begin * item_bytes_, scales_};
    multiply_(factors, scaled, count, nullptr);
    const void* choices[3] = {mask, scaled, kZeros};
    select_(choices, context.out<char>(0) + begin * item_bytes_, count, nullptr);
  }

  Stream stream_;
  TileFn multiply_;
  TileFn select_;
  int64_t item_bytes_;
  int64_t count_;
  uint32_t threshold_ = 0;
  alignas(64) char scales_[kTile * sizeof(double)];
};

std::unique_ptr<Kernel> make_dropout(const NodeView& view) {
  return std::make_unique<DropoutKernel>(view);
}

constexpr KernelRow kRows[] = {{"uniform", make_uniform},
                               {"normal", make_normal},
                               {"random_int", make_random_int},
                               {"dropout", make_dropout}};

}  // namespace

std::span<const KernelRow> random_kernels() { return kRows; }

}  // namespace lucid::cpu
