#include "backends/cpu/cpu_backend.h"

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/cpu/fusion.h"
#include "backends/cpu/kernel.h"
#include "backends/cpu/memory_pool.h"
#include "backends/cpu/sink.h"
#include "backends/cpu/views.h"
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
  std::string label;
  std::string types;
  ops::Cost cost;
};

std::string with_location(const char* what, const ir::LocationRef& location) {
  std::string text = what;
  if (location == nullptr || text.find("\n  at ") != std::string::npos) return text;
  return text + "\n  at " + location->file + ":" + std::to_string(location->line);
}

// The kernel of a node; what it refuses is told with the user's line.
std::unique_ptr<Kernel> located_kernel(const NodeView& view) {
  const ir::Node& node = view.node;
  try {
    return make_kernel(view);
  } catch (const Error& error) {
    throw Error(error.kind(), with_location(error.what(), node.location));
  }
}

// A graph as it runs: the graph it was made of, the one with views in it, and the fused one.
struct Lowered {
  explicit Lowered(const ir::Graph& from)
      : source(from), viewed(use_views(from)), fused(fuse_elementwise(viewed.graph)) {}

  // Place in the source of a node that is not fused.
  size_t origin(size_t node) const { return viewed.origins[fused.origins[node]]; }
  bool has_views(size_t node) const {
    const NodeViews& views = viewed.views[fused.origins[node]];
    return !views.inputs.empty() || !views.outputs.empty();
  }
  // The node as its kernel sees it.
  NodeView view(size_t node) const {
    const NodeViews& views = viewed.views[fused.origins[node]];
    return {source.nodes()[origin(node)], source, views.inputs, views.outputs};
  }

  const ir::Graph& source;
  ViewedGraph viewed;
  FusedGraph fused;
};

planner::Plan plan_of(const FusedGraph& fused, std::span<const int64_t> scratch_sizes,
                      std::span<const planner::Given> given) {
  const auto may_overwrite = [&](size_t node, size_t output, size_t input) {
    const std::optional<TileProgram>& program = fused.programs[node];
    if (program) return program->may_overwrite(output, input);
    return planner::allows_overwrite(*fused.graph.nodes()[node].op, output, input);
  };
  return planner::plan(fused.graph, scratch_sizes, may_overwrite, given);
}

class CpuExecutable final : public backends::Executable {
 public:
  CpuExecutable(const Lowered& lowered, std::span<const planner::Given> given) {
    const FusedGraph& fused = lowered.fused;
    const ir::Graph& graph = fused.graph;
    std::vector<int64_t> scratch_sizes;
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      add_step(lowered, i);
      scratch_sizes.push_back(static_cast<int64_t>(steps_.back().kernel->scratch_bytes()));
    }
    plan_ = plan_of(fused, scratch_sizes, given);
    keep_safe_donations(fused);
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
    std::vector<BufferRef> outputs(output_sizes_.size());
    run_into(outputs, inputs, run_time_attrs);
    return outputs;
  }

  std::vector<BufferRef> run_giving(std::span<const BufferRef> inputs,
                                    const std::vector<bool>& given) const override {
    std::vector<BufferRef> outputs(output_sizes_.size());
    for (const planner::Donation& donation : plan_.donations) {
      if (given[donation.input]) outputs[donation.output] = inputs[donation.input];
    }
    run_into(outputs, inputs, nullptr);
    return outputs;
  }

  std::vector<backends::KernelTime> profile(std::span<const BufferRef> inputs,
                                            std::vector<BufferRef>& outputs) const override {
    std::vector<backends::KernelTime> times;
    for (const Step& step : steps_) {
      times.push_back({step.label, step.types, step.location, step.cost, 0});
    }
    outputs.assign(output_sizes_.size(), nullptr);
    run_into(outputs, inputs, nullptr, &times);
    return times;
  }

  backends::MemoryReport memory() const override { return memory_; }

 private:
  // Outputs that have no buffer yet get a fresh one.
  void run_into(std::vector<BufferRef>& outputs, std::span<const BufferRef> inputs,
                const ir::Attrs* run_time_attrs,
                std::vector<backends::KernelTime>* times = nullptr) const {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == nullptr) outputs[i] = allocate(output_sizes_[i]);
    }
    Lease arena(plan_.arena_bytes);
    Scratchpad pointers(operands_.size());
    for (size_t i = 0; i < operands_.size(); ++i) {
      const uint32_t value = operands_[i];
      pointers[i] = value == kAbsent ? nullptr : address(value, inputs, outputs, arena);
    }
    Memory memory(inputs, outputs, arena);
    for (size_t i = 0; i < steps_.size(); ++i) {
      using Clock = std::chrono::steady_clock;
      const Clock::time_point start = times != nullptr ? Clock::now() : Clock::time_point{};
      run_step(steps_[i], pointers.data(), arena, run_time_attrs, memory);
      if (times == nullptr) continue;
      (*times)[i].seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    for (const planner::Copy& copy : plan_.copies) {
      const void* from = address(index(copy.from), inputs, outputs, arena);
      const auto size = static_cast<size_t>(output_sizes_[copy.output]);
      if (size > 0) std::memcpy(outputs[copy.output]->data(), from, size);
    }
  }

  // What is overwritten cannot be put back: a donation stands only where no later node can fail.
  void keep_safe_donations(const FusedGraph& fused) {
    const auto cannot_fail = [&](size_t node) {
      const ir::Node& made = fused.graph.nodes()[node];
      return fused.programs[node].has_value() || made.op->is(ir::kAlias) ||
             pointwise_tile({made, fused.graph}).function != nullptr;
    };
    size_t first_safe = fused.graph.nodes().size();
    while (first_safe > 0 && cannot_fail(first_safe - 1)) --first_safe;
    std::erase_if(plan_.donations,
                  [&](const planner::Donation& donation) { return donation.node < first_safe; });
  }

  class Memory final : public RunMemory {
   public:
    Memory(std::span<const BufferRef> inputs, const std::vector<BufferRef>& outputs, Lease& arena)
        : inputs_(inputs), outputs_(outputs), arena_(arena) {}

    std::shared_ptr<void> share() override {
      if (shared_ != nullptr) return shared_;
      auto made = std::make_shared<Shared>();
      made->buffers.assign(inputs_.begin(), inputs_.end());
      made->buffers.insert(made->buffers.end(), outputs_.begin(), outputs_.end());
      made->arena.emplace(std::move(arena_));
      shared_ = made;
      return made;
    }

   private:
    struct Shared {
      std::vector<BufferRef> buffers;
      std::optional<Lease> arena;
    };
    std::span<const BufferRef> inputs_;
    const std::vector<BufferRef>& outputs_;
    Lease& arena_;
    std::shared_ptr<void> shared_;
  };

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

  void add_step(const Lowered& lowered, size_t place) {
    const ir::Graph& graph = lowered.fused.graph;
    const ir::Node& node = graph.nodes()[place];
    const std::optional<TileProgram>& program = lowered.fused.programs[place];
    Step step{
        .kernel = program ? make_fused_kernel({node, graph}, *program)
                          : located_kernel(lowered.view(place)),
        .attrs = node.attrs,
        .location = node.location,
        .label = program ? program->label : std::string(node.op->name),
        .types = {},
        .cost = program ? program->cost : ops::node_cost(lowered.source, lowered.view(place).node)};
    for (const ir::ValueId output : node.outputs) {
      step.types += (step.types.empty() ? "" : ", ") + ir::to_string(graph.type(output));
    }
    step.first_input = static_cast<uint32_t>(operands_.size());
    for (const auto& input : node.inputs) operands_.push_back(input ? index(*input) : kAbsent);
    step.first_output = static_cast<uint32_t>(operands_.size());
    for (const ir::ValueId output : node.outputs) operands_.push_back(index(output));
    // Results that the node makes in one value, see NodeViews.
    const size_t num_results = program ? 0 : lowered.view(place).node.outputs.size();
    for (size_t i = node.outputs.size(); i < num_results; ++i) {
      operands_.push_back(index(node.outputs.front()));
    }
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
                       const ir::Attrs* run_time_attrs, RunMemory& memory) {
    const RunContext context{
        .inputs = pointers + step.first_input,
        .outputs = pointers + step.first_output,
        .scratch = arena.data() + step.scratch_offset,
        .attrs = run_time_attrs != nullptr ? run_time_attrs : &step.attrs,
        .memory = &memory,
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
    return compile(graph, backends::CompileHints{});
  }
  backends::ExecutableRef compile(const ir::Graph& graph,
                                  const backends::CompileHints& hints) override {
    const ir::Graph ordered = sink_updates(graph, hints.given);
    return std::make_shared<CpuExecutable>(Lowered(ordered), hints.given);
  }
  std::vector<int64_t> scratch_sizes(const ir::Graph& graph) override {
    std::vector<int64_t> sizes;
    for (const ir::Node& node : graph.nodes()) {
      const auto kernel = located_kernel({node, graph});
      sizes.push_back(static_cast<int64_t>(kernel->scratch_bytes()));
    }
    return sizes;
  }
  int64_t arena_bytes(const ir::Graph& graph, std::span<const int64_t> scratch_sizes) override {
    const Lowered lowered(graph);
    std::vector<int64_t> sizes;
    for (size_t i = 0; i < lowered.fused.programs.size(); ++i) {
      if (lowered.fused.programs[i]) {
        sizes.push_back(0);
      } else if (lowered.has_views(i)) {  // a kernel may ask for more where rows lie apart
        const auto kernel = located_kernel(lowered.view(i));
        sizes.push_back(static_cast<int64_t>(kernel->scratch_bytes()));
      } else {
        sizes.push_back(scratch_sizes[lowered.origin(i)]);
      }
    }
    return plan_of(lowered.fused, sizes, {}).arena_bytes;
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
