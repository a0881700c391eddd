#include "ir/op.h"

#include <cassert>

#include "ir/graph.h"

namespace lucid::ir {
namespace {

double as_real(const AttrValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return static_cast<double>(*integer);
  return std::get<double>(value);
}

const AttrValue& find(const Op& op, const Attrs& attrs, std::string_view name) {
  const int place = op.attr_index(name);
  if (place < 0) {
    throw Error(ErrorKind::kInternal,
                std::string(op.name) + ": no attribute named " + std::string(name));
  }
  return attrs[static_cast<size_t>(place)];
}

}  // namespace

int Op::attr_index(std::string_view attr) const {
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (attrs[i].name == attr) return static_cast<int>(i);
  }
  return -1;
}

const AttrValue& InferArgs::value(std::string_view attr) const { return find(op_, attrs_, attr); }

double InferArgs::real(std::string_view attr) const { return as_real(value(attr)); }

void InferArgs::fail(ErrorKind kind, const std::string& what) const {
  throw Error(kind, std::string(op_.name) + ": " + what);
}

const AttrValue& Node::attr(std::string_view name) const { return find(*op, attrs, name); }

double Node::real(std::string_view name) const { return as_real(attr(name)); }

std::string to_string(const ValueType& type) {
  std::string text(name(type.dtype));
  text += '[';
  for (int axis = 0; axis < type.shape.rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(type.shape[axis]);
  }
  return text + ']';
}

}  // namespace lucid::ir
