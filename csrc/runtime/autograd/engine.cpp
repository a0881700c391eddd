#include "runtime/autograd/engine.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ops/registry.h"
#include "runtime/dispatch/dispatch.h"
#include "runtime/process.h"
#include "runtime/trace/recorder.h"
#include "support/errors.h"
#include "support/pointer_index.h"

namespace lucid::runtime {
namespace {

Variable seed_of(const TensorRef& root, const TensorRef& seed) {
  const ir::ValueType& type = root->type();
  if (seed == nullptr) {
    if (type.num_elements() == 1) return {.value = unit_value(type, root->device())};
    throw Error(ErrorKind::kAutograd,
                "backward: a gradient can be implied only for one element: the tensor has shape " +
                    to_string(type.shape) + "; reduce it to a scalar or pass gradient=");
  }
  if (seed->type().shape != type.shape) {
    throw Error(ErrorKind::kShape, "backward: gradient has shape " + to_string(seed->type().shape) +
                                       ", the tensor " + to_string(type.shape));
  }
  if (seed->type().dtype != type.dtype) {
    throw Error(ErrorKind::kDType, "backward: gradient is " +
                                       std::string(name(seed->type().dtype)) + ", the tensor " +
                                       std::string(name(type.dtype)));
  }
  return seed->operand();
}

bool has_nan(const Variable& grad) {
  if (!is_floating(grad.value.type.dtype)) return false;
  static const ir::Op& isnan = ops::get("isnan");
  static const ir::Op& any = ops::get("any");
  ir::Ints dims;
  for (int i = 0; i < grad.value.type.shape.rank(); ++i) dims.push_back(i);
  const GradMode no_grad(false);
  const Variable found = dispatch_one(any, {dispatch_one(isnan, {grad})}, {dims, false});
  return *found.value.data<bool>();
}

// Stops a backward at the node that makes a gradient nan.
void check_gradients(const GradNode& node, const Gradients& found) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i] || !has_nan(*found[i])) continue;
    std::string text = "backward: " + node.name() + " returned nan as gradient " +
                       std::to_string(i) + "; look at what it is computed from";
    if (const ir::LocationRef& line = node.location(); line != nullptr) {
      text += "\n  at " + line->file + ":" + std::to_string(line->line);
    }
    throw Error(ErrorKind::kAutograd, text);
  }
}

// One backward: a heap of tape nodes, newest first, and the gradients that arrived at them.
class Run {
  struct LeafSum {
    TensorRef leaf;  // null if it has gone
    Variable grad;
  };

 public:
  explicit Run(BackwardMode mode) : mode_(mode) {}

  void add_root(const TensorRef& root, const TensorRef& seed) {
    if (!root->requires_grad()) {
      throw Error(ErrorKind::kAutograd,
                  "backward: the tensor does not require a gradient and has no history");
    }
    contribute(root->edge(), seed_of(root, seed));
  }

  void run() {
    const GradMode grad_mode(mode_.create_graph);
    const AutocastOff no_autocast;
    while (!heap_.empty()) {
      std::ranges::pop_heap(heap_, is_older);
      const std::shared_ptr<GradNode> node = std::move(heap_.back());
      heap_.pop_back();
      visit(*node);
    }
    for (auto& [leaf, grad] : leaves_) run_leaf_hooks(leaf, grad);
  }

  /// Adds the finished gradients; nothing here can fail but for memory.
  void accumulate(std::span<const TensorRef> only) {
    const GradMode grad_mode(mode_.create_graph);
    for (auto& [leaf, grad] : leaves_) {
      if (leaf == nullptr) continue;
      if (!only.empty() && std::ranges::find(only, leaf) == only.end()) continue;
      leaf->accumulate(std::move(grad));
    }
    for (auto& [tensor, grad] : retained_) tensor->accumulate(std::move(grad));
  }

  /// The gradient that arrived at an edge, if it was asked for by watch().
  std::optional<Variable> arrived(const Edge& edge) const {
    const auto it = watched_.find(edge.node.get());
    return it == watched_.end() ? std::nullopt : it->second[edge.index];
  }

  void watch(const Edge& edge) { watched_.try_emplace(edge.node.get(), edge.node->num_outputs()); }

 private:
  static bool is_older(const std::shared_ptr<GradNode>& lhs, const std::shared_ptr<GradNode>& rhs) {
    return lhs->sequence() < rhs->sequence();
  }

  static void add_to(std::optional<Variable>& slot, Variable grad) {
    static const ir::Op& add = ops::get("add");
    slot = slot ? dispatch_one(add, {*slot, std::move(grad)}) : std::move(grad);
  }

  void contribute(const Edge& edge, Variable grad) {
    if (edge.node->is_accumulator()) {
      contribute_to_leaf(edge, std::move(grad));
      return;
    }
    const auto [it, is_new] = pending_.try_emplace(edge.node.get(), edge.node->num_outputs());
    if (is_new) {
      heap_.push_back(edge.node);
      std::ranges::push_heap(heap_, is_older);
    }
    add_to(it->second[edge.index], std::move(grad));
  }

  void contribute_to_leaf(const Edge& edge, Variable grad) {
    const auto [place, is_new] = leaf_places_.insert(edge.node.get());
    if (is_new) {
      leaves_.push_back({static_cast<Accumulator&>(*edge.node).leaf(), std::move(grad)});
      return;
    }
    static const ir::Op& add = ops::get("add");
    Variable& sum = leaves_[place].grad;
    sum = dispatch_one(add, {sum, std::move(grad)});
  }

  static void run_hook(const GradHook& hook, Variable& grad) {
    const TensorRef replacement = hook(make_tensor(grad));
    if (replacement == nullptr) return;
    if (replacement->type() != grad.value.type) {
      throw Error(ErrorKind::kShape, "gradient hook: returned " +
                                         ir::to_string(replacement->type()) + " for a gradient " +
                                         ir::to_string(grad.value.type));
    }
    grad = replacement->operand();
  }

  static void run_leaf_hooks(const TensorRef& leaf, Variable& grad) {
    if (leaf == nullptr || leaf->state_if_any() == nullptr) return;
    if (leaf->state_if_any()->hooks.empty()) return;
    const auto hooks = leaf->state_if_any()->hooks;  // a copy: a hook may remove itself
    for (const auto& [id, hook] : hooks) run_hook(hook, grad);
  }

  void visit(GradNode& node) {
    Gradients grads = std::move(pending_.extract(&node).mapped());
    const auto hooks = node.hooks;
    for (const GradNode::OutputHook& hook : hooks) {
      if (grads[hook.output]) run_hook(hook.run, *grads[hook.output]);
    }
    for (const auto& [output, tensor] : node.retainers) {
      const TensorRef kept = tensor.lock();
      if (kept != nullptr && grads[output]) retained_.emplace_back(kept, *grads[output]);
    }
    const auto watched = watched_.find(&node);
    if (watched != watched_.end()) watched->second = grads;
    Gradients found = node.apply(grads, mode_);
    if (process_state().refuses_nan.load(std::memory_order_relaxed)) check_gradients(node, found);
    if (!mode_.retain_graph && !mode_.create_graph) node.release();
    leaf_places_.reserve(leaves_.size() + found.size());
    leaves_.reserve(leaves_.size() + found.size());
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i] && node.next()[i]) contribute(node.next()[i], *std::move(found[i]));
    }
  }

 public:
  std::optional<Variable> leaf_grad(const GradNode* accumulator) const {
    const uint32_t place = leaf_places_.find(accumulator);
    if (place == PointerIndex::kAbsent) return std::nullopt;
    return leaves_[place].grad;
  }

 private:
  BackwardMode mode_;
  std::vector<std::shared_ptr<GradNode>> heap_;
  std::unordered_map<const GradNode*, Gradients> pending_;
  std::unordered_map<const GradNode*, Gradients> watched_;
  PointerIndex leaf_places_;
  std::vector<LeafSum> leaves_;  // in the order of their first contribution
  std::vector<std::pair<TensorRef, Variable>> retained_;
};

void refuse_in_trace() {
  if (thread_state().recorder == nullptr) return;
  throw Error(ErrorKind::kTrace,
              "backward: called inside a compiled step, which makes the backward itself; return "
              "the loss instead, or use autograd.grad(..., create_graph=True)");
}

}  // namespace

void backward(std::span<const TensorRef> roots, std::span<const TensorRef> seeds, BackwardMode mode,
              std::span<const TensorRef> inputs) {
  refuse_in_trace();
  Run run(mode);
  for (size_t i = 0; i < roots.size(); ++i) run.add_root(roots[i], seeds[i]);
  run.run();
  run.accumulate(inputs);
}

std::vector<TensorRef> grad(std::span<const TensorRef> roots, std::span<const TensorRef> seeds,
                            std::span<const TensorRef> inputs, BackwardMode mode,
                            bool allow_unused) {
  if (thread_state().recorder != nullptr) {
    return thread_state().recorder->grad(roots, seeds, inputs, mode.create_graph, allow_unused);
  }
  Run run(mode);
  std::vector<Edge> edges;
  for (const TensorRef& input : inputs) {
    if (!input->requires_grad()) {
      throw Error(ErrorKind::kAutograd,
                  "grad: an input does not require a gradient; call "
                  "requires_grad_() on it before it is used");
    }
    edges.push_back(input->edge());
    if (!edges.back().node->is_accumulator()) run.watch(edges.back());
  }
  for (size_t i = 0; i < roots.size(); ++i) run.add_root(roots[i], seeds[i]);
  run.run();
  std::vector<TensorRef> result;
  for (size_t i = 0; i < edges.size(); ++i) {
    const bool is_leaf = edges[i].node->is_accumulator();
    const auto found = is_leaf ? run.leaf_grad(edges[i].node.get()) : run.arrived(edges[i]);
    if (!found && !allow_unused) {
      throw Error(ErrorKind::kAutograd,
                  "grad: input " + std::to_string(i) +
                      " is not part of the graph; pass allow_unused=True to get None for it");
    }
    result.push_back(found ? make_tensor(*found) : nullptr);
  }
  return result;
}

}  // namespace lucid::runtime
