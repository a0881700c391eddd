#include "compile/entry.h"

#include <unordered_map>
#include <utility>

#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::compile {
namespace {

bool fits(const ArgumentSpec& spec, const runtime::Tensor& tensor) {
  return spec.type == tensor.type() && spec.device == tensor.device() &&
         spec.requires_grad == tensor.requires_grad();
}

// By tensor: the place of the first one that has its cell, or -1 if that is itself.
std::vector<int> shared_cells(std::span<const TensorRef> tensors) {
  std::vector<int> result(tensors.size(), -1);
  constexpr size_t kFew = 16;  // for as many, comparing all pairs is faster
  if (tensors.size() <= kFew) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      for (size_t j = 0; j < i && result[i] < 0; ++j) {
        if (tensors[j]->cell() == tensors[i]->cell()) result[i] = static_cast<int>(j);
      }
    }
    return result;
  }
  std::unordered_map<const runtime::Cell*, int> first;
  first.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [at, is_new] = first.emplace(tensors[i]->cell().get(), static_cast<int>(i));
    if (!is_new) result[i] = at->second;
  }
  return result;
}

}  // namespace

std::vector<ArgumentSpec> describe(std::span<const TensorRef> arguments) {
  const std::vector<int> same_as = shared_cells(arguments);
  std::vector<ArgumentSpec> specs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const runtime::Tensor& tensor = *arguments[i];
    specs.push_back({tensor.type(), tensor.device(), tensor.requires_grad(), same_as[i]});
  }
  return specs;
}

StepEntry::StepEntry(std::shared_ptr<Program> program, std::vector<ArgumentSpec> arguments,
                     std::vector<TensorRef> captures, std::span<const TensorRef> found)
    : program_(std::move(program)),
      arguments_(std::move(arguments)),
      capture_specs_(describe(captures)),
      captures_(std::make_shared<const std::vector<TensorRef>>(std::move(captures))),
      modes_(modes()),
      module_version_(runtime::process_state().module_version.load()) {
  for (size_t i = 0; i < found.size(); ++i) {
    const bool hides_history = found[i]->requires_grad() && !(*captures_)[i]->requires_grad();
    captures_detached_.push_back(hides_history);
  }
}

StepEntry::Modes StepEntry::modes() {
  const runtime::ThreadState& thread = runtime::thread_state();
  const runtime::ProcessState& process = runtime::process_state();
  return {thread.grad_enabled, process.default_dtype.load(), process.default_device.load(),
          thread.autocast};
}

bool StepEntry::accepts(std::span<const TensorRef> arguments) const {
  if (arguments.size() != arguments_.size() || modes() != modes_) return false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!fits(arguments_[i], *arguments[i])) return false;
  }
  const std::vector<int> same_as = shared_cells(arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (same_as[i] != arguments_[i].same_as) return false;
  }
  return true;
}

std::optional<std::vector<TensorRef>> StepEntry::try_run(std::span<const TensorRef> arguments,
                                                         std::span<const double> scalars) {
  if (runtime::thread_state().recorder != nullptr) return {};
  const uint64_t version = runtime::process_state().module_version.load(std::memory_order_relaxed);
  if (version != module_version_.load(std::memory_order_relaxed)) return {};
  if (!accepts(arguments)) return {};
  const auto bound = captures();
  return program_->run({.arguments = arguments, .captures = *bound, .scalars = scalars});
}

void StepEntry::probe(std::span<const TensorRef> arguments) {
  if (!accepts(arguments)) {
    throw Error(ErrorKind::kInternal, "step: a probe with arguments of another signature");
  }
  const auto bound = captures();
  program_->probe({.arguments = arguments, .captures = *bound});
}

std::vector<backends::KernelTime> StepEntry::profile(std::span<const TensorRef> arguments,
                                                     std::span<const double> scalars) {
  if (!accepts(arguments)) {
    throw Error(ErrorKind::kUser,
                "profile: the arguments are not those of this signature; call the step with them "
                "first, in the same modes");
  }
  if (program_->has_effects()) {
    throw Error(ErrorKind::kUser,
                "profile: the step has an impure custom operation, which would run once more; "
                "profile it without");
  }
  const auto bound = captures();
  return program_->profile({.arguments = arguments, .captures = *bound, .scalars = scalars});
}

std::shared_ptr<const std::vector<TensorRef>> StepEntry::captures() const {
  const std::scoped_lock lock(mutex_);
  return captures_;
}

bool StepEntry::rebind(std::vector<TensorRef> captures) {
  if (captures.size() != capture_specs_.size()) return false;
  for (size_t i = 0; i < captures.size(); ++i) {
    if (captures_detached_[i]) captures[i] = captures[i]->detach();
  }
  const std::vector<ArgumentSpec> found = describe(captures);
  if (found != capture_specs_) return false;
  const uint64_t version = runtime::process_state().module_version.load();
  const std::scoped_lock lock(mutex_);
  captures_ = std::make_shared<const std::vector<TensorRef>>(std::move(captures));
  module_version_ = version;
  return true;
}

}  // namespace lucid::compile
