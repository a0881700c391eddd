#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/chain.h"
#include "backends/metal/gpu.h"
#include "backends/metal/macos.h"
#include "backends/metal/metal_backend.h"
#include "backends/metal/metal_buffer.h"
#include "backends/metal/metal_executable.h"
#include "backends/metal/stream.h"

namespace lucid::metal {
namespace {

using backends::BufferRef;

/// A single node run by the cpu over the shared memory: what no graph of Metal holds.
class HostExecutable final : public backends::Executable {
 public:
  explicit HostExecutable(const ir::Graph& graph)
      : executable_(backends::backend_for(Device::kCpu).compile(graph)) {}

  std::vector<BufferRef> run(std::span<const BufferRef> inputs,
                             const ir::Attrs* run_time_attrs) const override {
    std::vector<BufferRef> outputs;
    for (const BufferRef& made : executable_->run(inputs, run_time_attrs)) {
      outputs.push_back(allocate(made->size_bytes()));
      if (made->size_bytes() == 0) continue;
      std::memcpy(outputs.back()->data(), made->data(), static_cast<size_t>(made->size_bytes()));
    }
    return outputs;
  }
  backends::MemoryReport memory() const override { return executable_->memory(); }

 private:
  backends::ExecutableRef executable_;
};

/// Refuses float64 anywhere in the graph, also where the host would run it.
void check_dtypes(const ir::Graph& graph) {
  for (size_t i = 0; i < graph.num_values(); ++i) {
    const ir::ValueId id{static_cast<uint32_t>(i)};
    if (graph.type(id).dtype != DType::kFloat64) continue;
    const int producer = graph.producer(id);
    const ir::Node* node = producer < 0 ? nullptr : &graph.nodes()[static_cast<size_t>(producer)];
    if (node == nullptr && !graph.nodes().empty()) node = &graph.nodes().front();
    const std::string op = node == nullptr ? "metal" : std::string(node->op->name);
    throw Error(ErrorKind::kUnsupported, with_location(op + ": float64 does not exist on metal: " +
                                                           ir::to_string(graph.type(id)) +
                                                           "; cast to float32, or use device cpu",
                                                       node == nullptr ? nullptr : node->location));
  }
}

bool has_run_time_shape(const ir::Op& op) {
  // A window that is read at each run: a graph per window would be compiled again and again.
  return std::ranges::any_of(op.attrs, [](const ir::AttrSpec& spec) {
    return spec.run_time && spec.type == ir::AttrType::kInts;
  });
}

bool has_empty_value(const ir::Graph& graph) {
  for (size_t i = 0; i < graph.num_values(); ++i) {
    if (graph.type(ir::ValueId{static_cast<uint32_t>(i)}).num_elements() == 0) return true;
  }
  return false;
}

// MPSGraph may merge what a memory limit computes twice, and orders its work as it likes: under a
// limit the graph is run in pieces, whose results are buffers of our own.
backends::ExecutableRef whole_or_cut(const ir::Graph& graph, const LoweringOptions& options,
                                     const backends::CompileHints& hints) {
  const auto compile = [&](const ir::Graph& part) -> backends::ExecutableRef {
    return std::make_shared<MetalExecutable>(part, options, hints.disk ? &*hints.disk : nullptr);
  };
  if (!hints.memory_limit) return compile(graph);
  const backends::Cuts cuts = backends::cut_to_limit(graph, *hints.memory_limit);
  return std::make_shared<backends::Chain>(graph, cuts, compile);
}

class MetalBackend final : public backends::Backend {
 public:
  backends::ExecutableRef compile(const ir::Graph& graph) override { return compile(graph, {}); }

  backends::ExecutableRef compile(const ir::Graph& graph,
                                  const backends::CompileHints& hints) override {
    check_dtypes(graph);
    const LoweringOptions options{.splits_long_products = Gpu::get().splits_long_products()};
    if (graph.nodes().size() != 1) return whole_or_cut(graph, options, hints);
    // A single node is an eager call, which the host may run.
    if (has_run_time_shape(*graph.nodes()[0].op) || has_empty_value(graph)) {
      return std::make_shared<HostExecutable>(graph);
    }
    try {
      return std::make_shared<MetalExecutable>(graph, options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUnsupported) throw;
      return std::make_shared<HostExecutable>(graph);
    }
  }

  int64_t arena_bytes(const ir::Graph& graph, std::span<const int64_t>) override {
    return backends::least_chain_bytes(graph);
  }
  bool knows_memory() const override { return false; }
  BufferRef allocate(int64_t size_bytes) override { return metal::allocate(size_bytes); }
  std::string device_name() const override { return Gpu::get().name(); }
  void synchronize() override { Stream::get().synchronize(); }
  int64_t allocated_bytes() override {
    Stream::get().retire_finished();
    return metal::allocated_bytes();
  }
  int64_t peak_allocated_bytes() override { return metal::peak_allocated_bytes(); }
  void reset_peak() override { metal::reset_peak(); }
  void empty_cache() override {
    Stream::get().retire_finished();
    metal::empty_cache();
  }
};

}  // namespace

bool is_available() { return Gpu::find() != nullptr; }

std::string unavailable_where() {
  const std::string version = macos_version();
  return is_supported_macos(version) ? "on this machine" : "on macOS " + version;
}

backends::Backend& backend() {
  static MetalBackend instance;
  return instance;
}

}  // namespace lucid::metal
