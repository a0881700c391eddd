#include "backends/cpu/cpu_backend.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "backends/cpu/kernel.h"
#include "backends/cpu/memory_pool.h"
#include "planner/plan.h"

namespace lucid::cpu {
namespace {

using backends::BufferRef;

constexpr uint32_t kAbsent = ~0u;

// One kernel and where its operands stand in the run's table of pointers.
struct Step {
  std::unique_ptr<Kernel> kernel;
  uint32_t first_input = 0;
  uint32_t first_output = 0;
  int64_t scratch_offset = 0;
  ir::Attrs attrs;
  ir::LocationRef location;
};

std::string with_location(const char* what, const ir::LocationRef& location) {
  std::string text = what;
  if (location == nullptr || text.find("\n  at ") != std::string::npos) return text;
  return text + "\n  at " + location->file + ":" + std::to_string(location->line);
}

// The kernel of a node; what it refuses is told with the user's line.
std::unique_ptr<Kernel> located_kernel(const ir::Graph& graph, const ir::Node& node) {
  try {
    return make_kernel({node, graph});
  } catch (const Error& error) {
    throw Error(error.kind(), with_location(error.what(), node.location));
  }
}

class CpuExecutable final : public backends::Executable {
 public:
  explicit CpuExecutable(const ir::Graph& graph) {
    std::vector<int64_t> scratch_sizes;
    for (const ir::Node& node : graph.nodes()) {
      add_step(graph, node);
      scratch_sizes.push_back(static_cast<int64_t>(steps_.back().kernel->scratch_bytes()));
    }
    plan_ = planner::plan(graph, scratch_sizes);
    for (size_t i = 0; i < steps_.size(); ++i) {
      steps_[i].scratch_offset = plan_.scratch_offsets[i];
    }
    drop_aliases(graph);
    for (const ir::Input& input : graph.inputs()) {
      memory_.inputs += graph.type(input.value).size_bytes();
    }
    for (const ir::ValueId output : graph.outputs()) {
      output_sizes_.push_back(graph.type(output).size_bytes());
      memory_.outputs += output_sizes_.back();
    }
    memory_.arena_peak = plan_.arena_bytes;
  }

  std::vector<BufferRef> run(std::span<const BufferRef> inputs,
                             const ir::Attrs* run_time_attrs) const override {
    std::vector<BufferRef> outputs;
    outputs.reserve(output_sizes_.size());
    for (const int64_t size : output_sizes_) outputs.push_back(allocate(size));
    const Lease arena(plan_.arena_bytes);
    Scratchpad pointers(operands_.size());
    for (size_t i = 0; i < operands_.size(); ++i) {
      const uint32_t value = operands_[i];
      pointers[i] = value == kAbsent ? nullptr : address(value, inputs, outputs, arena);
    }
    for (const Step& step : steps_) run_step(step, pointers.data(), arena, run_time_attrs);
    for (const planner::Copy& copy : plan_.copies) {
      const void* from = address(index(copy.from), inputs, outputs, arena);
      const auto size = static_cast<size_t>(output_sizes_[copy.output]);
      if (size > 0) std::memcpy(outputs[copy.output]->data(), from, size);
    }
    return outputs;
  }

  backends::MemoryReport memory() const override { return memory_; }

 private:
  // Pointers of one run; small graphs keep them on the stack.
  class Scratchpad {
   public:
    explicit Scratchpad(size_t count) {
      if (count > kInline) heap_.resize(count);
    }
    void** data() { return heap_.empty() ? inline_ : heap_.data(); }
    void*& operator[](size_t i) { return data()[i]; }

   private:
    static constexpr size_t kInline = 64;
    void* inline_[kInline];
    std::vector<void*> heap_;
  };

  void add_step(const ir::Graph& graph, const ir::Node& node) {
    Step step{
        .kernel = located_kernel(graph, node), .attrs = node.attrs, .location = node.location};
    step.first_input = static_cast<uint32_t>(operands_.size());
    for (const auto& input : node.inputs) operands_.push_back(input ? index(*input) : kAbsent);
    step.first_output = static_cast<uint32_t>(operands_.size());
    for (const ir::ValueId output : node.outputs) operands_.push_back(index(output));
    steps_.push_back(std::move(step));
  }

  // A node whose output has the bytes of its input needs no run if both share a place.
  void drop_aliases(const ir::Graph& graph) {
    std::vector<Step> kept;
    for (size_t i = 0; i < steps_.size(); ++i) {
      if (!graph.nodes()[i].op->is(ir::kAlias)) kept.push_back(std::move(steps_[i]));
    }
    steps_ = std::move(kept);
  }

  void* address(uint32_t value, std::span<const BufferRef> inputs,
                const std::vector<BufferRef>& outputs, const Lease& arena) const {
    const planner::Place& place = plan_.places[value];
    switch (place.kind) {
      case planner::PlaceKind::kInput:
        return inputs[place.slot]->data();
      case planner::PlaceKind::kOutput:
        return outputs[place.slot]->data();
      case planner::PlaceKind::kArena:
        return arena.data() + place.offset_bytes;
    }
    return nullptr;
  }

  static void run_step(const Step& step, void* const* pointers, const Lease& arena,
                       const ir::Attrs* run_time_attrs) {
    const RunContext context{
        .inputs = pointers + step.first_input,
        .outputs = pointers + step.first_output,
        .scratch = arena.data() + step.scratch_offset,
        .attrs = run_time_attrs != nullptr ? run_time_attrs : &step.attrs,
    };
    try {
      step.kernel->run(context);
    } catch (const Error& error) {
      throw Error(error.kind(), with_location(error.what(), step.location));
    }
  }

  std::vector<Step> steps_;
  std::vector<uint32_t> operands_;
  std::vector<int64_t> output_sizes_;
  planner::Plan plan_;
  backends::MemoryReport memory_;
};

class CpuBackend final : public backends::Backend {
 public:
  backends::ExecutableRef compile(const ir::Graph& graph) override {
    return std::make_shared<CpuExecutable>(graph);
  }
  std::vector<int64_t> scratch_sizes(const ir::Graph& graph) override {
    std::vector<int64_t> sizes;
    for (const ir::Node& node : graph.nodes()) {
      const auto kernel = located_kernel(graph, node);
      sizes.push_back(static_cast<int64_t>(kernel->scratch_bytes()));
    }
    return sizes;
  }
  BufferRef allocate(int64_t size_bytes) override { return cpu::allocate(size_bytes); }
  std::string device_name() const override { return "cpu"; }
  int64_t allocated_bytes() override { return backends::allocated_bytes(); }
  int64_t peak_allocated_bytes() override { return backends::peak_allocated_bytes(); }
  void reset_peak() override { backends::reset_peaks(); }
  void empty_cache() override { cpu::empty_cache(); }
};

}  // namespace

backends::Backend& backend() {
  static CpuBackend instance;
  return instance;
}

}  // namespace lucid::cpu
