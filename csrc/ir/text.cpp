// Text form of a graph: printing, and a parser that reads it back.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <unordered_map>

#include "ir/graph.h"

namespace lucid::ir {
namespace {

std::string name_of(ValueId id) { return "%" + std::to_string(index(id)); }

// Also prints the broken nodes that the verifier shows: no operation, too many attributes.
std::string node_text(const Graph& graph, const Node& node) {
  const auto name_of_attr = [&](size_t i) {
    const bool is_known = node.op != nullptr && i < node.op->attrs.size();
    return std::string(is_known ? node.op->attrs[i].name : "?");
  };
  std::string text = "  ";
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + name_of(node.outputs[i]);
  }
  text += " = " + std::string(node.op == nullptr ? "?" : node.op->name) + "(";
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    text += (i > 0 ? ", " : "") + (node.inputs[i] ? name_of(*node.inputs[i]) : "_");
  }
  text += ")";
  for (size_t i = 0; i < node.attrs.size(); ++i) {
    text += (i > 0 ? ", " : " {") + name_of_attr(i) + "=" + to_string(node.attrs[i]);
  }
  if (!node.attrs.empty()) text += "}";
  if (node.stop_gradient) text += " stop_gradient";
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    text += (i > 0 ? ", " : " : ") + to_string(graph.type(node.outputs[i]));
  }
  if (node.location != nullptr) {
    text += "  # " + node.location->file + ":" + std::to_string(node.location->line);
  }
  return text + "\n";
}

// Recursive descent over one text; ids in the text map to fresh ids of the graph.
class Parser {
 public:
  Parser(std::string_view text, const std::function<const Op*(std::string_view)>& find_op)
      : text_(text), find_op_(find_op) {}

  Graph run() {
    expect("graph");
    expect("{");
    while (!accept("return")) statement();
    std::vector<ValueId> outputs;
    if (peek() == '%') {
      do outputs.push_back(known());
      while (accept(","));
    }
    expect("}");
    graph_.set_outputs(std::move(outputs));
    skip();
    if (at_ < text_.size()) fail("text after the closing brace");
    return std::move(graph_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kUser, "graph text, line " + std::to_string(line_) + ": " + what);
  }

  void skip() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        continue;
      }
      if (c != ' ' && c != '\n' && c != '\t' && c != '\r') return;
      line_ += c == '\n' ? 1 : 0;
      ++at_;
    }
  }

  char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(std::string_view token) {
    skip();
    if (text_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }

  void expect(std::string_view token) {
    if (!accept(token)) fail("expected '" + std::string(token) + "'");
  }

  std::string_view word() {
    skip();
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_')) {
      ++at_;
    }
    if (at_ == begin) fail("expected a name");
    return text_.substr(begin, at_ - begin);
  }

  int64_t integer() {
    skip();
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail("expected an integer");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  uint32_t id() {
    expect("%");
    const int64_t value = integer();
    if (value < 0 || value > std::numeric_limits<int32_t>::max()) fail("bad value id");
    return static_cast<uint32_t>(value);
  }

  ValueId known() {
    const uint32_t written = id();
    const auto it = ids_.find(written);
    if (it == ids_.end()) fail("%" + std::to_string(written) + " is used before it is made");
    return it->second;
  }

  void bind(uint32_t written, ValueId made) {
    if (!ids_.emplace(written, made).second) {
      fail("%" + std::to_string(written) + " is made twice");
    }
  }

  ValueType type() {
    const std::string_view text = word();
    const std::optional<DType> dtype = dtype_from_name(text);
    if (!dtype) fail("unknown dtype " + std::string(text));
    try {
      return {*dtype, Shape(ints())};
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kShape) throw;
      fail(error.what());
    }
  }

  Ints ints() {
    Ints values;
    expect("[");
    if (accept("]")) return values;
    do values.push_back(integer());
    while (accept(","));
    expect("]");
    return values;
  }

  std::string quoted() {
    expect("\"");
    std::string bytes;
    while (at_ < text_.size() && text_[at_] != '"') {
      if (text_.substr(at_, 2) != "\\x") {
        bytes += text_[at_++];
        continue;
      }
      unsigned value = 0;
      const std::string_view digits = text_.substr(at_ + 2, 2);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
      if (error != std::errc() || end != digits.data() + 2) fail("bad escape in a string");
      bytes += static_cast<char>(value);
      at_ += 4;
    }
    expect("\"");
    return bytes;
  }

  AttrValue number() {
    skip();
    const size_t end = std::min(text_.find_first_of(",}", at_), text_.size());
    std::string_view text = text_.substr(at_, end - at_);
    at_ = end;
    text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "-nan") return -std::numeric_limits<double>::quiet_NaN();
    if (text == "inf") return std::numeric_limits<double>::infinity();
    if (text == "-inf") return -std::numeric_limits<double>::infinity();
    if (text.find_first_of(".e") == std::string_view::npos) {
      return whole_number<int64_t>(text);
    }
    return whole_number<double>(text);
  }

  // The number that the whole text is; one out of range is refused.
  template <class T>
  T whole_number(std::string_view text) const {
    T value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size()) return value;
    fail("bad number '" + std::string(text) + "'");
  }

  AttrValue attribute(AttrType type) {
    switch (type) {
      case AttrType::kBool:
        if (accept("true")) return true;
        expect("false");
        return false;
      case AttrType::kDType: {
        const std::string_view text = word();
        const std::optional<DType> dtype = dtype_from_name(text);
        if (!dtype) fail("unknown dtype " + std::string(text));
        return *dtype;
      }
      case AttrType::kString:
        return quoted();
      case AttrType::kInts:
        return ints();
      case AttrType::kInt:
      case AttrType::kFloat:
      case AttrType::kNumber:
        return number();
    }
    fail("unknown attribute type");
  }

  Attrs attributes(const Op& op) {
    Attrs attrs;
    if (op.attrs.empty()) return attrs;
    expect("{");
    for (const AttrSpec& spec : op.attrs) {
      if (!attrs.empty()) expect(",");
      expect(spec.name);
      expect("=");
      attrs.push_back(attribute(spec.type));
      if (!fits(attrs.back(), spec.type)) fail("attribute " + std::string(spec.name));
    }
    expect("}");
    return attrs;
  }

  void statement() {
    skip();
    const int first_line = line_;
    std::vector<uint32_t> written;
    do written.push_back(id());
    while (accept(","));
    expect("=");
    if (accept("input ")) {
      if (written.size() != 1) fail("an input is one value");
      bind(written.front(), input());
      return;
    }
    const std::string_view op_name = word();
    Node node;
    node.op = find_op_(op_name);
    if (node.op == nullptr) fail("unknown operation " + std::string(op_name));
    expect("(");
    while (!accept(")")) {
      if (!node.inputs.empty()) expect(",");
      node.inputs.push_back(accept("_") ? std::nullopt : std::optional(known()));
    }
    node.attrs = attributes(*node.op);
    node.stop_gradient = accept("stop_gradient");
    expect(":");
    ValueTypes types;
    do types.push_back(type());
    while (accept(","));
    if (types.size() != written.size()) {
      line_ = first_line;
      fail("as many types as outputs are needed");
    }
    const std::vector<ValueId> made = graph_.add_node(std::move(node), types);
    for (size_t i = 0; i < made.size(); ++i) bind(written[i], made[i]);
  }

  ValueId input() {
    const std::string_view text = word();
    for (int i = 0; i <= static_cast<int>(Role::kSeed); ++i) {
      const Role role = static_cast<Role>(i);
      if (name(role) == text) return graph_.add_input(role, type());
    }
    fail("unknown role " + std::string(text));
  }

  std::string_view text_;
  const std::function<const Op*(std::string_view)>& find_op_;
  Graph graph_;
  std::unordered_map<uint32_t, ValueId> ids_;
  size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::string to_string(const Graph& graph) {
  std::string text = "graph {\n";
  for (const Input& input : graph.inputs()) {
    text += "  " + name_of(input.value) + " = input " + std::string(name(input.role)) + " " +
            to_string(graph.type(input.value)) + "\n";
  }
  for (const Node& node : graph.nodes()) text += node_text(graph, node);
  text += "  return";
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    text += (i > 0 ? ", " : " ") + name_of(graph.outputs()[i]);
  }
  return text + "\n}\n";
}

Graph parse(std::string_view text, const std::function<const Op*(std::string_view)>& find_op) {
  Graph graph = Parser(text, find_op).run();
  try {
    verify(graph, "parse");
  } catch (const Error& error) {
    throw Error(ErrorKind::kUser, error.what());
  }
  return graph;
}

}  // namespace lucid::ir
