// The kernel of fused element-wise nodes: a program run tile by tile, in parallel.
#include <algorithm>
#include <utility>
#include <vector>

#include "backends/cpu/broadcast.h"
#include "backends/cpu/fusion.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

using Place = TileProgram::Place;

constexpr int64_t kLineBytes = 64;  // of a cache; tiles begin at one
constexpr double kRangeNs = 20e3;   // work of one range of the parallel loop
constexpr double kTrafficNs = 0.1;  // memory traffic of an element of an operand, roughly
constexpr int64_t kCacheBytes = int64_t{32} << 20;  // operands that take more come from memory

// Memory for the tiles of one range, kept by its thread from run to run.
char* tile_memory(size_t bytes) {
  thread_local std::vector<char> memory;
  if (memory.size() < bytes + kLineBytes) memory.resize(bytes + kLineBytes);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (kLineBytes - address % kLineBytes) % kLineBytes;
}

// Fetches into the second-level cache. The processor alone does not foresee the next piece of many
// streams that are read in turn.
void fetch(const void* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += kLineBytes) {
    __builtin_prefetch(static_cast<const char*>(from) + i, 0, 2);
  }
}

class FusedKernel final : public Kernel {
 public:
  FusedKernel(const NodeView& view, TileProgram program)
      : program_(std::move(program)), plan_(view.output(0).shape, types_of(view), kTile) {
    count_ = view.output(0).num_elements();
    for (size_t i = 0; i < view.num_inputs(); ++i) {
      in_bytes_.push_back(size_bytes(view.input(i).dtype));
    }
    for (size_t j = 0; j < view.node.outputs.size(); ++j) {
      out_bytes_.push_back(size_bytes(view.output(j).dtype));
    }
    for (const auto& instruction : program_.instructions) cost_ns_ += instruction.tile.cost_ns;
    cost_ns_ += kTrafficNs * static_cast<double>(in_bytes_.size() + out_bytes_.size());
    int64_t item_bytes = program_.register_item_bytes;
    for (const int64_t bytes : in_bytes_) item_bytes = std::max(item_bytes, bytes);
    const int64_t tile_bytes = plan_.tile_elements() * item_bytes;
    tile_bytes_ = (tile_bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
    int64_t bytes = 0;  // of an element of all operands
    for (const int64_t size : in_bytes_) bytes += size;
    for (const int64_t size : out_bytes_) bytes += size;
    is_far_ = bytes * count_ > kCacheBytes;
    const auto wanted = static_cast<int64_t>(kRangeNs / cost_ns_);
    grain_ = std::max(wanted / plan_.tile_elements(), int64_t{1}) * plan_.tile_elements();
  }

  void run(const RunContext& context) const override {
    if (count_ <= grain_) return run_range(context, 0, count_);
    parallel_for(count_, grain_, cost_ns_,
                 [&](int64_t begin, int64_t end) { run_range(context, begin, end); });
  }

 private:
  static constexpr int64_t kTile = 512;

  static std::vector<ir::ValueType> types_of(const NodeView& view) {
    std::vector<ir::ValueType> types;
    for (size_t i = 0; i < view.num_inputs(); ++i) types.push_back(view.input(i));
    return types;
  }

  void run_range(const RunContext& context, int64_t begin, int64_t end) const {
    if (begin >= end) return;
    const size_t num_inputs = in_bytes_.size();
    const auto stride = static_cast<size_t>(tile_bytes_);
    char* const memory = tile_memory((num_inputs + program_.num_registers) * stride);
    char* const registers = memory + num_inputs * stride;
    const int64_t tile_size = plan_.tile_elements();
    const int64_t longest = std::min(tile_size, end - begin);
    for (size_t k = 0; k < num_inputs; ++k) {
      plan_.prepare(k, context.inputs[k], longest, memory + k * stride);
    }
    std::vector<const void*>& inputs = pointers(num_inputs);
    for (int64_t at = begin; at < end; at += tile_size) {
      const int64_t size = std::min(tile_size, end - at);
      const int64_t next_size = std::min(tile_size, end - at - size);
      for (size_t k = 0; k < num_inputs; ++k) {
        char* const buffer = memory + k * stride;
        inputs[k] = plan_.tile(k, context.inputs[k], at, size, buffer);
        if (is_far_ && inputs[k] != buffer) {
          fetch(static_cast<const char*>(inputs[k]) + size * in_bytes_[k],
                next_size * in_bytes_[k]);
        }
      }
      for (const TileProgram::Instruction& instruction : program_.instructions) {
        const void* operands[3] = {};
        for (size_t i = 0; i < 3; ++i) {
          const Place& place = instruction.operands[i];
          operands[i] = place.in == Place::In::kInput ? inputs[place.number]
                                                      : address(context, place, at, registers);
        }
        const PointwiseTile& tile = instruction.tile;
        tile.function(operands, address(context, instruction.result, at, registers), size,
                      tile.parameters.data());
      }
    }
  }

  void* address(const RunContext& context, const Place& place, int64_t at, char* registers) const {
    if (place.in == Place::In::kRegister) {
      return registers + static_cast<size_t>(place.number) * static_cast<size_t>(tile_bytes_);
    }
    return context.out<char>(place.number) + at * out_bytes_[place.number];
  }

  static std::vector<const void*>& pointers(size_t count) {
    thread_local std::vector<const void*> kept;
    kept.resize(std::max(kept.size(), count));
    return kept;
  }

  TileProgram program_;
  BroadcastPlan plan_;
  int64_t count_ = 0;
  int64_t tile_bytes_ = 0;
  int64_t grain_ = 0;
  double cost_ns_ = 0.0;
  bool is_far_ = false;  ///< the operands lie in memory, not in a cache
  std::vector<int64_t> in_bytes_;
  std::vector<int64_t> out_bytes_;
};

}  // namespace

std::unique_ptr<Kernel> make_fused_kernel(const NodeView& view, TileProgram program) {
  return std::make_unique<FusedKernel>(view, std::move(program));
}

}  // namespace lucid::cpu
