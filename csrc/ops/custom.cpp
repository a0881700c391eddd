// Operations and gradient rules that users write in the language above. The nodes name a function
// and carry its keyword arguments as text; HostFunctions calls it.
#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/families.h"
#include "ops/host_functions.h"
#include "ops/infer.h"
#include "ops/vjp.h"

namespace lucid::ops {
namespace {

using ir::AttrType;
using ir::InferArgs;
using ir::ValueTypes;

// Kernels ask for it, and they stand below runtime/process.h.
std::atomic<const HostFunctions*> the_host{nullptr};

// Reads "float32[2, 3], int64[]".
class TypesReader {
 public:
  explicit TypesReader(const InferArgs& args) : args_(args), text_(args.string("results")) {}

  ValueTypes read() {
    ValueTypes types;
    do types.push_back(type());
    while (accept(", "));
    if (at_ != text_.size()) fail();
    return types;
  }

 private:
  [[noreturn]] void fail() const {
    args_.fail(ErrorKind::kUser, "results are not a list of types: \"" + text_ +
                                     "\"; write it as float32[2, 3], int64[]");
  }

  bool accept(std::string_view token) {
    if (text_.compare(at_, token.size(), token) != 0) return false;
    at_ += token.size();
    return true;
  }

  ir::ValueType type() {
    const size_t end = std::min(text_.find('[', at_), text_.size());
    const auto dtype = dtype_from_name(std::string_view(text_).substr(at_, end - at_));
    at_ = end;
    if (!dtype || !accept("[")) fail();
    Ints sizes;
    if (accept("]")) return {*dtype, Shape(sizes)};
    do sizes.push_back(size());
    while (accept(", "));
    if (!accept("]")) fail();
    return {*dtype, Shape(sizes)};
  }

  int64_t size() {
    int64_t value = 0;
    const char* const end = text_.data() + text_.size();
    const auto [stop, error] = std::from_chars(text_.data() + at_, end, value);
    if (error != std::errc()) fail();
    at_ = static_cast<size_t>(stop - text_.data());
    return value;
  }

  const InferArgs& args_;
  const std::string& text_;
  size_t at_ = 0;
};

void require_array_dtype(const InferArgs& args, DType dtype) {
  if (dtype == DType::kBFloat16) {
    args.fail(ErrorKind::kDType, "NumPy has no bfloat16; cast to float32 first");
  }
}

ValueTypes infer_custom(const InferArgs& args) {
  for (size_t i = 0; i < args.num_inputs(); ++i) require_array_dtype(args, args.dtype(i));
  ValueTypes types = TypesReader(args).read();
  for (const ValueType& type : types) require_array_dtype(args, type.dtype);
  return types;
}

Grads custom_vjp(Builder& b, const Node& node, const Grads& grads,
                 const std::vector<bool>& wanted) {
  Grads result = absent(node);
  Ints asked;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (wants(b, node, wanted, i)) asked.push_back(static_cast<int64_t>(i));
  }
  Ints given;
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i]) given.push_back(static_cast<int64_t>(i));
  }
  if (asked.empty() || given.empty()) return result;
  if (!node.flag("has_gradient")) {
    throw Error(ErrorKind::kUnsupported,
                node.string("function") +
                    ": has no gradient rule; register one with @<operation>.vjp, or detach its "
                    "inputs if none is meant");
  }
  std::vector<std::optional<ValueId>> inputs = node.inputs;
  inputs.insert(inputs.end(), node.outputs.begin(), node.outputs.end());
  for (const int64_t i : given) inputs.push_back(grads[static_cast<size_t>(i)]);
  const std::vector<ValueId> found =
      b.ops(node.op->is(ir::kPure) ? "custom_grad" : "custom_impure_grad", std::move(inputs),
            {node.string("function"), node.string("arguments"),
             static_cast<int64_t>(node.inputs.size()), given, asked});
  for (size_t i = 0; i < found.size(); ++i) result[static_cast<size_t>(asked[i])] = found[i];
  return result;
}

ValueTypes infer_custom_grad(const InferArgs& args) {
  ValueTypes types;
  for (const int64_t input : args.ints("wanted")) {
    if (input < 0 || input >= args.integer("num_inputs") ||
        args.integer("num_inputs") > static_cast<int64_t>(args.num_inputs())) {
      args.fail(ErrorKind::kUser, "wanted input is out of range: " + std::to_string(input) +
                                      "; name inputs of the function");
    }
    types.push_back(args.input(static_cast<size_t>(input)));
  }
  return types;
}

Grads custom_grad_vjp(Builder&, const Node& node, const Grads&, const std::vector<bool>&) {
  throw Error(ErrorKind::kUnsupported,
              node.string("function") +
                  ": its gradient has no gradient of its own; write the operation in tensor "
                  "operations where second derivatives are needed");
}

ValueTypes infer_with_gradient(const InferArgs& args) {
  const int64_t count = args.integer("num_outputs");
  const auto num_inputs = static_cast<int64_t>(args.num_inputs());
  if (count < 1 || count > num_inputs) {
    args.fail(ErrorKind::kUser, "number of outputs is out of range: " + std::to_string(count) +
                                    "; use 1 to " + std::to_string(num_inputs));
  }
  ValueTypes types;
  for (int64_t i = num_inputs - count; i < num_inputs; ++i) {
    types.push_back(args.input(static_cast<size_t>(i)));
  }
  return types;
}

Grads with_gradient_vjp(Builder& b, const Node& node, const Grads& grads,
                        const std::vector<bool>& wanted) {
  GradientRules* const rules = b.gradient_rules();
  if (rules != nullptr) return rules->apply(node, grads, wanted);
  throw Error(ErrorKind::kUnsupported,
              "with_gradient: the trace that holds its gradient rule has ended; differentiate "
              "inside of the trace");
}

ir::Op custom(std::string_view name, std::string_view doc, uint32_t traits) {
  return {.name = name,
          .doc = doc,
          .min_inputs = 0,
          .max_inputs = -1,
          .attrs = {{"function", AttrType::kString},
                    {"arguments", AttrType::kString},
                    {"results", AttrType::kString},
                    {"has_gradient", AttrType::kBool}},
          .traits = traits,
          .infer = infer_custom,
          .vjp = custom_vjp};
}

ir::Op custom_grad(std::string_view name, std::string_view doc, uint32_t traits) {
  return {.name = name,
          .doc = doc,
          .min_inputs = 1,
          .max_inputs = -1,
          .attrs = {{"function", AttrType::kString},
                    {"arguments", AttrType::kString},
                    {"num_inputs", AttrType::kInt},
                    {"given", AttrType::kInts},
                    {"wanted", AttrType::kInts}},
          .traits = traits,
          .infer = infer_custom_grad,
          .vjp = custom_grad_vjp,
          .vjp_reads_inputs = 0,
          .vjp_reads_outputs = 0};
}

}  // namespace

bool calls_host(const ir::Op& op) {
  constexpr std::array<std::string_view, 4> kNames = {"custom", "custom_impure", "custom_grad",
                                                      "custom_impure_grad"};
  return std::ranges::find(kNames, op.name) != kNames.end();
}

const HostFunctions* host_functions() { return the_host.load(std::memory_order_acquire); }

void set_host_functions(const HostFunctions* host) {
  the_host.store(host, std::memory_order_release);
}

std::vector<ir::Op> custom_ops() {
  return {
      custom("custom", "a user's function of arrays that depends on them alone", ir::kPure),
      custom("custom_impure", "a user's function that has effects: runs once, in order", 0),
      custom_grad("custom_grad", "the gradient rule of custom", ir::kPure),
      custom_grad("custom_impure_grad", "the gradient rule of custom_impure", 0),
      {.name = "with_gradient",
       .doc = "its last inputs as they are, with a gradient rule that came with the trace",
       .min_inputs = 1,
       .max_inputs = -1,
       .attrs = {{"rule", AttrType::kInt}, {"num_outputs", AttrType::kInt}},
       .traits = ir::kPure,
       .infer = infer_with_gradient,
       .vjp = with_gradient_vjp},
  };
}

}  // namespace lucid::ops
