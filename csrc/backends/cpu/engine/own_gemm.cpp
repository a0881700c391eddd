#include "backends/cpu/engine/own_gemm.h"

#include <algorithm>
#include <utility>

#include "backends/cpu/engine/batch_offsets.h"
#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/slots.h"
#include "backends/cpu/engine/speed.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr double kCallNs = 50.0;
constexpr double kParallelNs = 20e3;  // below, the team does not pay
constexpr double kTaskNs = 10e3;
constexpr int64_t kTasksPerThread = 4;
constexpr int64_t kColumnUnit = 64;  // two panels of the widest micro-kernel
constexpr int64_t kRowUnit = 12;     // rows of the highest micro-kernel
constexpr int64_t kMinRows = 48;
constexpr int64_t kMaxColumns = 512;       // of a task, so that its part of b stays in the cache
constexpr int64_t kSharedPanelRows = 256;  // of c: fewer are two blocks at most, each packs b
// Of a c that leaves no room for the operands in a cache of 32 MB. Written past the caches, its
// lines are not read first.
constexpr int64_t kPastCachesBytes = 16 << 20;

/// How one product is cut into tasks. Any cut gives the same bits.
struct Cut {
  int64_t rows;     ///< of a task
  int64_t columns;  ///< of a task
  int64_t row_parts;
  int64_t column_parts;
};

Cut cut_into(int64_t m, int64_t n, int64_t row_parts, int64_t column_parts) {
  Cut cut{};
  cut.columns = std::min(n, round_up(divide_up(n, column_parts), kColumnUnit));
  cut.rows = std::min(m, round_up(divide_up(m, row_parts), kRowUnit));
  cut.column_parts = divide_up(n, cut.columns);
  cut.row_parts = divide_up(m, cut.rows);
  return cut;
}

/// The tasks share neither copies of a nor packed parts of b: of the cuts into enough tasks the
/// one that copies least.
Cut choose_cut(int64_t m, int64_t n, int64_t batch, double product_ns) {
  const double total_ns = product_ns * static_cast<double>(batch);
  if (total_ns < kParallelNs) return {m, n, 1, 1};
  const int64_t least_columns = divide_up(n, kMaxColumns);
  if (num_threads() == 1) return cut_into(m, n, 1, least_columns);
  const int64_t wanted =
      std::min<int64_t>(static_cast<int64_t>(total_ns / kTaskNs), num_threads() * kTasksPerThread);
  const int64_t parts = divide_up(wanted, batch);
  Cut best{};
  int64_t best_tasks = 0;
  int64_t best_copied = 0;
  const int64_t most_columns =
      std::max(least_columns, std::clamp<int64_t>(n / kColumnUnit, 1, parts));
  for (int64_t column_parts = most_columns; column_parts >= least_columns; --column_parts) {
    const int64_t row_parts = std::clamp<int64_t>(m / kMinRows, 1, divide_up(parts, column_parts));
    const Cut cut = cut_into(m, n, row_parts, column_parts);
    const int64_t tasks = std::min(parts, cut.row_parts * cut.column_parts);
    const int64_t copied = cut.column_parts * m + cut.row_parts * n;
    if (tasks < best_tasks || (tasks == best_tasks && copied >= best_copied)) continue;
    best = cut;
    best_tasks = tasks;
    best_copied = copied;
  }
  return best;
}

template <class T>
class OwnGemm final : public Gemm {
 public:
  explicit OwnGemm(const GemmSpec& spec)
      : offsets_(spec),
        a_size_(spec.m * spec.k),
        b_size_(spec.k * spec.n),
        c_size_(spec.m * spec.n) {
    product_ = {.a = nullptr,
                .a_row = spec.transpose_a ? 1 : spec.k,
                .a_depth = spec.transpose_a ? spec.m : 1,
                .b = nullptr,
                .b_depth = spec.transpose_b ? 1 : spec.n,
                .b_column = spec.transpose_b ? spec.k : 1,
                .c = nullptr,
                .c_row = spec.n,
                .m = spec.m,
                .n = spec.n,
                .k = spec.k};
    if (spec.n == 1 && spec.m > 1) make_row_of_column();
    product_.past_caches = c_size_ * static_cast<int64_t>(sizeof(T)) >= kPastCachesBytes;
    const double product_ns = kCallNs + 2.0 * static_cast<double>(c_size_) *
                                            static_cast<double>(spec.k) * sizeof(T) /
                                            kProductBytesPerNs;
    cut_ = choose_cut(product_.m, product_.n, std::max<int64_t>(offsets_.count(), 1), product_ns);
    tasks_per_product_ = cut_.row_parts * cut_.column_parts;
    task_ns_ = product_ns / static_cast<double>(tasks_per_product_);
    grain_ = std::max<int64_t>(1, static_cast<int64_t>(kTaskNs / task_ns_));
    if (cut_.rows >= kSharedPanelRows) {
      const int64_t columns = round_up(cut_.columns, kMaxPanelColumns);
      const int64_t depth_bytes =
          std::min(spec.k * static_cast<int64_t>(sizeof(T)), kPanelDepthBytes);
      slot_bytes_ = aligned(static_cast<size_t>(columns * depth_bytes));
      num_slots_ = static_cast<int>(std::min<int64_t>(
          num_threads(), tasks_per_product_ * std::max<int64_t>(offsets_.count(), 1)));
    }
  }

  size_t scratch_bytes() const override { return slot_bytes_ * static_cast<size_t>(num_slots_); }

  void run(const void* a, const void* b, const void* bias, void* c, void* scratch) const override {
    if (c_size_ == 0) return;
    BlockProduct<T> product = product_;
    product.bias = static_cast<const T*>(bias);
    product.a = static_cast<const T*>(swapped_ ? b : a);
    product.b = static_cast<const T*>(swapped_ ? a : b);
    product.c = static_cast<T*>(c);
    const int64_t num_tasks = offsets_.count() * tasks_per_product_;
    if (num_tasks == 1) {
      if (slot_bytes_ > 0) product.workspace = static_cast<T*>(scratch);
      block_product(product);
      return;
    }
    if (slot_bytes_ > 0) {
      for_each_in_slots(num_tasks, num_slots_, task_ns_, [&](int64_t slot, int64_t task) {
        char* const own = static_cast<char*>(scratch) + static_cast<size_t>(slot) * slot_bytes_;
        BlockProduct<T> mine = product;
        mine.workspace = reinterpret_cast<T*>(own);
        run_task(mine, task);
      });
      return;
    }
    parallel_for(num_tasks, grain_, task_ns_, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) run_task(product, task);
    });
  }

 private:
  /// A single column is computed as a row, so that its elements lie side by side in registers.
  void make_row_of_column() {
    swapped_ = true;
    std::swap(product_.m, product_.n);
    std::swap(product_.a_depth, product_.b_depth);
    std::swap(product_.a_row, product_.b_column);
    product_.bias_column = 0;
  }

  void run_task(BlockProduct<T> product, int64_t task) const {
    const int64_t item = task / tasks_per_product_;
    const int64_t part = task % tasks_per_product_;
    const int64_t row = part / cut_.column_parts * cut_.rows;
    const int64_t column = part % cut_.column_parts * cut_.columns;
    const int64_t a_offset = offsets_.a(item) * a_size_;
    const int64_t b_offset = offsets_.b(item) * b_size_;
    product.a += (swapped_ ? b_offset : a_offset) + row * product.a_row;
    product.b += (swapped_ ? a_offset : b_offset) + column * product.b_column;
    product.c += item * c_size_ + row * product.c_row + column;
    if (product.bias != nullptr) product.bias += column * product.bias_column;
    product.m = std::min(cut_.rows, product.m - row);
    product.n = std::min(cut_.columns, product.n - column);
    block_product(product);
  }

  BatchOffsets offsets_;
  int64_t a_size_;
  int64_t b_size_;
  int64_t c_size_;
  BlockProduct<T> product_;
  bool swapped_ = false;
  Cut cut_{};
  int64_t tasks_per_product_ = 1;
  double task_ns_ = 0;
  int64_t grain_ = 1;
  size_t slot_bytes_ = 0;  ///< of the packed panels of a task's columns
  int num_slots_ = 1;
};

}  // namespace

std::unique_ptr<Gemm> make_own_gemm(const GemmSpec& spec) {
  if (spec.dtype == DType::kFloat64) return std::make_unique<OwnGemm<double>>(spec);
  return std::make_unique<OwnGemm<float>>(spec);
}

}  // namespace lucid::cpu
