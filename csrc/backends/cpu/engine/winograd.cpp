#include "backends/cpu/engine/winograd.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/slots.h"
#include "backends/cpu/engine/speed.h"
#include "backends/cpu/engine/winograd_blocks.h"
#include "backends/cpu/engine/winograd_tiles.h"

namespace lucid::cpu {
namespace {

constexpr int64_t kFilterChunk = 48;         // filters whose transformed outputs are kept at a time
constexpr int64_t kBlockBytes = 768 * 1024;  // of transformed tiles: they stay in a cache
constexpr int64_t kFewestChannels = 16;      // below, transforms cost what the products gain
constexpr int64_t kFewestTiles = 32;
constexpr int64_t kSmallestOutput = 4;

/// A convolution over padded planes: result[image, filter] = sum over channels of source[image,
/// channel] by 3 x 3 taps. The input gradient is one with channels and filters exchanged and the
/// taps in reverse.
struct PlaneConvolution {
  int64_t batch;
  int64_t channels;
  int64_t filters;
  int64_t height;  ///< of a source plane
  int64_t width;
  int64_t result_height;
  int64_t result_width;
  int64_t lead_rows;
  int64_t lead_columns;
  bool flipped;  ///< the weight is stored (channels, filters, taps in reverse)
};

PlaneConvolution forward_planes(const ConvolutionSpec& spec) {
  const ConvolutionAxis& rows = spec.axes[1];
  const ConvolutionAxis& columns = spec.axes[2];
  return {spec.batch,  spec.channels,  spec.filters, rows.input,      columns.input,
          rows.output, columns.output, rows.padding, columns.padding, false};
}

PlaneConvolution input_grad_planes(const ConvolutionSpec& spec) {
  const ConvolutionAxis& rows = spec.axes[1];
  const ConvolutionAxis& columns = spec.axes[2];
  return {spec.batch, spec.filters,  spec.channels,    rows.output,         columns.output,
          rows.input, columns.input, 2 - rows.padding, 2 - columns.padding, true};
}

template <class T>
class WinogradConvolution final : public Convolution {
 public:
  explicit WinogradConvolution(const PlaneConvolution& planes)
      : planes_(planes),
        plan_(planes.batch, planes.channels + std::min(kFilterChunk, planes.filters),
              planes.result_height, planes.result_width, sizeof(T), kBlockBytes) {
    const int64_t blocks = std::max<int64_t>(plan_.num_blocks(), 1);
    const int64_t wanted = divide_up(num_threads() * kTileTasksPerThread, blocks);
    const int64_t parts =
        num_threads() == 1
            ? 1
            : std::clamp<int64_t>(wanted, 1, divide_up(planes.filters, kFilterChunk));
    part_filters_ = divide_up(planes.filters, parts);
    filter_parts_ = divide_up(planes.filters, part_filters_);
    num_slots_ = static_cast<int>(std::min<int64_t>(blocks * filter_parts_, num_threads()));
    const int64_t tiles = plan_.block_tiles();
    const auto bytes = [](int64_t elements) {
      return aligned(static_cast<size_t>(elements) * sizeof(T));
    };
    weight_bytes_ = bytes(kTileElements * weight_step());
    inputs_bytes_ = bytes(kTileElements * TilePlan::step(planes.channels, tiles));
    chunk_ = std::min(kFilterChunk, part_filters_);
    outputs_bytes_ = bytes(kTileElements * TilePlan::step(chunk_, tiles));
    slot_bytes_ = inputs_bytes_ + outputs_bytes_;
    task_ns_ = 2.0 * static_cast<double>(kTileElements * planes.channels * part_filters_ * tiles) *
               sizeof(T) / kConvolutionBytesPerNs;
  }

  size_t scratch_bytes() const override {
    return weight_bytes_ + slot_bytes_ * static_cast<size_t>(num_slots_);
  }

  void run(const void* first, const void* second, const void* third, void* result,
           void* scratch) const override {
    T* const weight = static_cast<T*>(scratch);
    transform_weights(static_cast<const T*>(second), weight);
    char* const slots = static_cast<char*>(scratch) + weight_bytes_;
    const int64_t tasks = plan_.num_blocks() * filter_parts_;
    for_each_in_slots(tasks, num_slots_, task_ns_, [&](int64_t slot, int64_t task) {
      char* const own = slots + static_cast<size_t>(slot) * slot_bytes_;
      const TileBlock block(plan_, task / filter_parts_);
      read_tiles<T>({static_cast<const T*>(first), planes_.height, planes_.width, planes_.lead_rows,
                     planes_.lead_columns, planes_.channels, 0, planes_.channels},
                    block, winograd_kernels<T>().of_input,
                    {reinterpret_cast<T*>(own), TilePlan::step(planes_.channels, block.tiles),
                     block.rows, plan_.tile_columns});
      const int64_t begin = task % filter_parts_ * part_filters_;
      const int64_t end = std::min(planes_.filters, begin + part_filters_);
      for (int64_t filter = begin; filter < end; filter += chunk_) {
        multiply(weight, block, filter, std::min(chunk_, end - filter), own);
        write_outputs(block, filter, std::min(chunk_, end - filter), static_cast<const T*>(third),
                      static_cast<T*>(result), own);
      }
    });
  }

 private:
  int64_t weight_step() const { return TilePlan::step(planes_.channels, planes_.filters); }
  T* outputs(char* own) const { return reinterpret_cast<T*>(own + inputs_bytes_); }

  /// to[t] is (filters, channels), or the other way round, as the weight is stored.
  void transform_weights(const T* from, T* to) const {
    const int64_t rows = planes_.flipped ? planes_.channels : planes_.filters;
    const int64_t columns = planes_.flipped ? planes_.filters : planes_.channels;
    const double row_ns = 2.0 * static_cast<double>(columns);
    parallel_for(rows, 8, row_ns, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        winograd_kernels<T>().of_weight(from + row * columns * kTaps, columns, planes_.flipped,
                                        to + row * columns, weight_step());
      }
    });
  }

  void multiply(const T* weight, const TileBlock& block, int64_t filter, int64_t filters,
                char* own) const {
    const int64_t in_step = TilePlan::step(planes_.channels, block.tiles);
    const int64_t out_step = TilePlan::step(chunk_, block.tiles);
    const int64_t filter_step = planes_.flipped ? 1 : planes_.channels;
    for (int64_t t = 0; t < kTileElements; ++t) {
      block_product(BlockProduct<T>{
          .a = weight + t * weight_step() + filter * filter_step,
          .a_row = filter_step,
          .a_depth = planes_.flipped ? planes_.filters : 1,
          .b = reinterpret_cast<const T*>(own) + t * in_step,
          .b_depth = block.tiles,
          .b_column = 1,
          .c = outputs(own) + t * out_step,
          .c_row = block.tiles,
          .m = filters,
          .n = block.tiles,
          .k = planes_.channels,
      });
    }
  }

  void write_outputs(const TileBlock& block, int64_t filter, int64_t filters, const T* bias,
                     T* result, char* own) const {
    const int64_t plane_size = planes_.result_height * planes_.result_width;
    const int64_t line = block.row * kTileStep;
    TileRows<T> rows{nullptr, TilePlan::step(chunk_, block.tiles), block.rows, plan_.tile_columns};
    for (int64_t f = 0; f < filters; ++f) {
      rows.tiles = outputs(own) + f * block.tiles;
      for (int64_t i = 0; i < block.images; ++i) {
        const int64_t plane = (block.image + i) * planes_.filters + filter + f;
        const OutputPlane<T> to{result + plane * plane_size + line * planes_.result_width,
                                planes_.result_height - line, planes_.result_width,
                                bias == nullptr ? T{0} : bias[filter + f]};
        winograd_kernels<T>().to_output(rows, to);
        rows.tiles += block.rows * plan_.tile_columns;
      }
    }
  }

  PlaneConvolution planes_;
  TilePlan plan_;
  int64_t part_filters_ = 1;
  int64_t filter_parts_ = 1;
  int64_t chunk_ = 1;  ///< filters whose transformed outputs are kept at a time
  int num_slots_ = 1;
  size_t weight_bytes_ = 0;
  size_t inputs_bytes_ = 0;
  size_t outputs_bytes_ = 0;
  size_t slot_bytes_ = 0;
  double task_ns_ = 0;
};

}  // namespace

bool winograd_gains(const ConvolutionSpec& spec) {
  static const bool is_allowed = [] {
    const char* text = std::getenv("LUCID_WINOGRAD");
    return text == nullptr || std::string_view(text) != "0";
  }();
  if (!is_allowed) return false;
  const ConvolutionAxis& depth = spec.axes[0];
  if (spec.groups != 1 || depth.kernel != 1 || depth.input != 1 || depth.output != 1) return false;
  for (const ConvolutionAxis& axis : {spec.axes[1], spec.axes[2]}) {
    if (axis.kernel != 3 || axis.stride != 1 || axis.dilation != 1) return false;
    if (axis.padding < 0 || axis.padding > 2 || axis.output < kSmallestOutput) return false;
  }
  const int64_t tiles = spec.batch * divide_up(spec.axes[1].output, kTileStep) *
                        divide_up(spec.axes[2].output, kTileStep);
  return spec.channels >= kFewestChannels && spec.filters >= kFewestChannels &&
         tiles >= kFewestTiles;
}

std::unique_ptr<Convolution> make_winograd_convolution(const ConvolutionSpec& spec) {
  const PlaneConvolution planes = forward_planes(spec);
  if (spec.dtype == DType::kFloat64) return std::make_unique<WinogradConvolution<double>>(planes);
  return std::make_unique<WinogradConvolution<float>>(planes);
}

std::unique_ptr<Convolution> make_winograd_input_grad(const ConvolutionSpec& spec) {
  const PlaneConvolution planes = input_grad_planes(spec);
  if (spec.dtype == DType::kFloat64) return std::make_unique<WinogradConvolution<double>>(planes);
  return std::make_unique<WinogradConvolution<float>>(planes);
}

}  // namespace lucid::cpu
