// The verifier: what every graph must be after every pass.
#include <string>

#include "ir/graph.h"

namespace lucid::ir {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, std::string_view stage)
      : graph_(graph), stage_(stage), made_(graph.num_values(), false) {}

  void run() {
    for (const Input& input : graph_.inputs()) make(input.value, "input");
    for (const Node& node : graph_.nodes()) check(node);
    for (const ValueId output : graph_.outputs()) use(output, "output of the graph");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kInternal, "graph broken after " + std::string(stage_) + ": " + what +
                                          "\n" + to_string(graph_));
  }

  static std::string name_of(ValueId id) { return "%" + std::to_string(index(id)); }

  void make(ValueId id, std::string_view what) {
    if (index(id) >= made_.size()) fail(std::string(what) + " " + name_of(id) + " has no type");
    if (made_[index(id)]) fail(name_of(id) + " is made twice");
    made_[index(id)] = true;
  }

  void use(ValueId id, std::string_view what) const {
    if (index(id) >= made_.size() || !made_[index(id)]) {
      fail(std::string(what) + " reads " + name_of(id) + " before it is made");
    }
  }

  void check(const Node& node) {
    if (node.op == nullptr) fail("a node without operation");
    std::vector<std::optional<ValueType>> types;
    for (const auto& input : node.inputs) {
      if (input) use(*input, node.op->name);
      types.push_back(input ? std::optional(graph_.type(*input)) : std::nullopt);
    }
    ValueTypes inferred;
    try {
      inferred = infer(*node.op, types, node.attrs, nullptr);
    } catch (const Error& error) {
      fail(error.what());
    }
    if (inferred.size() != node.outputs.size()) {
      fail(std::string(node.op->name) + " has another number of outputs");
    }
    for (size_t i = 0; i < inferred.size(); ++i) {
      make(node.outputs[i], node.op->name);
      if (inferred[i] == graph_.type(node.outputs[i])) continue;
      fail(std::string(node.op->name) + " makes " + to_string(inferred[i]) + " but " +
           name_of(node.outputs[i]) + " is " + to_string(graph_.type(node.outputs[i])));
    }
  }

  const Graph& graph_;
  std::string_view stage_;
  std::vector<bool> made_;
};

}  // namespace

void verify(const Graph& graph, std::string_view stage) { Verifier(graph, stage).run(); }

}  // namespace lucid::ir
