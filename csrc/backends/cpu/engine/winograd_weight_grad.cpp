// The gradient of the weight by F(2x2, 3x3): products of transformed tiles, summed over fixed parts
// of the tiles and added in order.
#include <algorithm>

#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/slots.h"
#include "backends/cpu/engine/speed.h"
#include "backends/cpu/engine/winograd.h"
#include "backends/cpu/engine/winograd_blocks.h"
#include "backends/cpu/engine/winograd_tiles.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kBlockBytes = 1024 * 1024;  // of transformed tiles: bits depend on it
constexpr int64_t kFilterUnit = 24;
constexpr int64_t kMaxParts = 16;
constexpr int64_t kMaxPartialElements = int64_t{1} << 20;

/// Parts of the tiles that are summed on their own: by the shape alone, for the bits depend on it.
int64_t choose_parts(const ConvolutionSpec& spec, int64_t num_blocks) {
  const int64_t sums = kTileElements * spec.filters * spec.channels;
  return std::clamp<int64_t>(std::min(kMaxPartialElements / sums, num_blocks), 1, kMaxParts);
}

/// dw = G^T (sum over tiles of (A dy A^T) * (B^T x B)) G: the adjoint of the convolution.
template <class T>
class WinogradWeightGrad final : public Convolution {
 public:
  explicit WinogradWeightGrad(const ConvolutionSpec& spec)
      : spec_(spec),
        plan_(spec.batch, spec.channels + spec.filters, spec.axes[1].output, spec.axes[2].output,
              sizeof(T), kBlockBytes),
        parts_(choose_parts(spec, plan_.num_blocks())) {
    const int64_t wanted = divide_up(num_threads() * kTileTasksPerThread, parts_);
    const int64_t most = divide_up(spec.filters, kFilterUnit);
    task_filters_ =
        divide_up(spec.filters, num_threads() == 1 ? 1 : std::clamp<int64_t>(wanted, 1, most));
    filter_parts_ = divide_up(spec.filters, task_filters_);
    num_slots_ = static_cast<int>(std::min<int64_t>(parts_ * filter_parts_, num_threads()));
    const int64_t tiles = plan_.block_tiles();
    const auto bytes = [](int64_t elements) {
      return aligned(static_cast<size_t>(elements) * sizeof(T));
    };
    partial_bytes_ = bytes(parts_ * sums_size());
    inputs_bytes_ = bytes(kTileElements * TilePlan::step(spec.channels, tiles));
    grads_bytes_ = bytes(kTileElements * TilePlan::step(task_filters_, tiles));
    const double flops = 2.0 * static_cast<double>(kTileElements * spec.channels * task_filters_) *
                         static_cast<double>(tiles * plan_.num_blocks());
    task_ns_ = flops * sizeof(T) / kConvolutionBytesPerNs / static_cast<double>(parts_);
  }

  size_t scratch_bytes() const override {
    return partial_bytes_ + slot_bytes() * static_cast<size_t>(num_slots_);
  }

  void run(const void* first, const void* second, const void*, void* result,
           void* scratch) const override {
    T* const partials = static_cast<T*>(scratch);
    char* const slots = static_cast<char*>(scratch) + partial_bytes_;
    for_each_in_slots(parts_ * filter_parts_, num_slots_, task_ns_,
                      [&](int64_t slot, int64_t task) {
                        sum_part(static_cast<const T*>(first), static_cast<const T*>(second), task,
                                 partials + task / filter_parts_ * sums_size(),
                                 slots + static_cast<size_t>(slot) * slot_bytes());
                      });
    finish(partials, static_cast<T*>(result));
  }

 private:
  size_t slot_bytes() const { return inputs_bytes_ + grads_bytes_; }
  int64_t sums_step() const { return TilePlan::step(spec_.filters, spec_.channels); }
  int64_t sums_size() const { return kTileElements * sums_step(); }

  /// The products of the blocks of one part, of some filters. sums[t] is (filters, channels).
  void sum_part(const T* grad, const T* source, int64_t task, T* sums, char* own) const {
    const int64_t part = task / filter_parts_;
    const int64_t filter = task % filter_parts_ * task_filters_;
    const int64_t filters = std::min(task_filters_, spec_.filters - filter);
    const int64_t begin = plan_.num_blocks() * part / parts_;
    const int64_t end = plan_.num_blocks() * (part + 1) / parts_;
    const ConvolutionAxis& rows = spec_.axes[1];
    const ConvolutionAxis& columns = spec_.axes[2];
    T* const inputs = reinterpret_cast<T*>(own);
    T* const grads = reinterpret_cast<T*>(own + inputs_bytes_);
    for (int64_t index = begin; index < end; ++index) {
      const TileBlock block(plan_, index);
      read_tiles<T>(
          {source, rows.input, columns.input, rows.padding, columns.padding, spec_.channels, 0,
           spec_.channels},
          block, winograd_kernels<T>().of_input,
          {inputs, TilePlan::step(spec_.channels, block.tiles), block.rows, plan_.tile_columns});
      read_tiles<T>(
          {grad, rows.output, columns.output, 0, 0, spec_.filters, filter, filters}, block,
          winograd_kernels<T>().of_grad,
          {grads, TilePlan::step(task_filters_, block.tiles), block.rows, plan_.tile_columns});
      for (int64_t t = 0; t < kTileElements; ++t) {
        block_product(BlockProduct<T>{
            .a = grads + t * TilePlan::step(task_filters_, block.tiles),
            .a_row = block.tiles,
            .a_depth = 1,
            .b = inputs + t * TilePlan::step(spec_.channels, block.tiles),
            .b_depth = 1,
            .b_column = block.tiles,
            .c = sums + t * sums_step() + filter * spec_.channels,
            .c_row = spec_.channels,
            .m = filters,
            .n = spec_.channels,
            .k = block.tiles,
            .accumulate = index > begin,
        });
      }
    }
  }

  /// Adds the parts in order and transforms the sums.
  void finish(const T* partials, T* result) const {
    const double filter_ns = static_cast<double>(spec_.channels * (4 + 2 * parts_));
    parallel_for(spec_.filters, 1, filter_ns, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * spec_.channels;
      winograd_kernels<T>().to_weight_grad(
          {partials + first, sums_step(), parts_, sums_size(), (end - begin) * spec_.channels},
          result + first * kTaps);
    });
  }

  ConvolutionSpec spec_;
  TilePlan plan_;
  int64_t parts_ = 1;
  int64_t task_filters_ = 1;
  int64_t filter_parts_ = 1;
  int num_slots_ = 1;
  size_t partial_bytes_ = 0;
  size_t inputs_bytes_ = 0;
  size_t grads_bytes_ = 0;
  double task_ns_ = 0;
};

}  // namespace

std::unique_ptr<Convolution> make_winograd_weight_grad(const ConvolutionSpec& spec) {
  if (spec.dtype == DType::kFloat64) return std::make_unique<WinogradWeightGrad<double>>(spec);
  return std::make_unique<WinogradWeightGrad<float>>(spec);
}

}  // namespace lucid::cpu
