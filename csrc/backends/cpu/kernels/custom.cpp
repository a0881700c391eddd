// Kernels of operations that users write in the language above: the memory goes to HostFunctions.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/kernels/families.h"
#include "ops/host_functions.h"
#include "support/errors.h"

namespace lucid::cpu {
namespace {

using ops::HostArray;

std::vector<HostArray> arrays(const std::vector<ir::ValueType>& types, void* const* places) {
  std::vector<HostArray> result;
  result.reserve(types.size());
  for (size_t i = 0; i < types.size(); ++i) result.push_back({places[i], types[i]});
  return result;
}

class HostKernel final : public Kernel {
 public:
  HostKernel(const NodeView& view, bool is_gradient)
      : function_(view.node.string("function")),
        arguments_(view.node.string("arguments")),
        location_(view.node.location),
        is_gradient_(is_gradient) {
    for (size_t i = 0; i < view.num_inputs(); ++i) inputs_.push_back(view.input(i));
    for (size_t i = 0; i < view.node.outputs.size(); ++i) results_.push_back(view.output(i));
    if (!is_gradient) return;
    num_inputs_ = view.node.integer("num_inputs");
    given_ = view.node.ints("given");
    wanted_ = view.node.ints("wanted");
  }

  void run(const RunContext& context) const override {
    const ops::HostFunctions* const host = ops::host_functions();
    if (host == nullptr) {
      throw Error(ErrorKind::kUnsupported,
                  function_ + ": no host calls functions here; define it in Python");
    }
    const std::vector<HostArray> inputs = arrays(inputs_, const_cast<void* const*>(context.inputs));
    const std::vector<HostArray> results = arrays(results_, context.outputs);
    const ops::HostGradient gradient{.num_inputs = num_inputs_, .given = given_, .wanted = wanted_};
    host->call({.function = function_,
                .arguments = arguments_,
                .inputs = inputs,
                .results = results,
                .gradient = is_gradient_ ? &gradient : nullptr,
                .location = location_,
                .share_memory = [&context]() -> std::shared_ptr<void> {
                  return context.memory == nullptr ? nullptr : context.memory->share();
                }});
  }

 private:
  std::string function_;
  std::string arguments_;
  ir::LocationRef location_;
  bool is_gradient_;
  std::vector<ir::ValueType> inputs_;
  std::vector<ir::ValueType> results_;
  int64_t num_inputs_ = 0;
  ir::Ints given_;
  ir::Ints wanted_;
};

std::unique_ptr<Kernel> make_custom(const NodeView& view) {
  return std::make_unique<HostKernel>(view, false);
}

std::unique_ptr<Kernel> make_custom_grad(const NodeView& view) {
  return std::make_unique<HostKernel>(view, true);
}

std::unique_ptr<Kernel> make_with_gradient(const NodeView& view) {
  std::vector<size_t> sizes;
  for (size_t i = 0; i < view.node.outputs.size(); ++i) {
    sizes.push_back(static_cast<size_t>(view.output(i).size_bytes()));
  }
  const size_t first = view.num_inputs() - sizes.size();
  return kernel([sizes = std::move(sizes), first](const RunContext& context) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (sizes[i] > 0) std::memcpy(context.outputs[i], context.inputs[first + i], sizes[i]);
    }
  });
}

constexpr KernelRow kRows[] = {
    {"custom", make_custom},
    {"custom_impure", make_custom},
    {"custom_grad", make_custom_grad},
    {"custom_impure_grad", make_custom_grad},
    {"with_gradient", make_with_gradient},
};

}  // namespace

std::span<const KernelRow> custom_kernels() { return kRows; }

}  // namespace lucid::cpu
