#include "compile/sized.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "support/errors.h"

namespace lucid::compile {
namespace {

// Far below a square of the sizes that are compared.
constexpr int64_t kCertainCoefficient = 1000;

// Products of a size and a number that a file brings do not overflow.
constexpr int64_t kMostSaved = int64_t{1} << 31;

// Not by std::abs, which leaves the least integer as it is.
bool is_bounded(int64_t saved) { return saved >= -kMostSaved && saved <= kMostSaved; }

[[noreturn]] void fail(const std::string& what) {
  throw Error(
      ErrorKind::kTrace,
      "compile: the graph depends on the size of the first axis in more than its shapes: " + what);
}

bool same_targets(const std::vector<runtime::GradTarget>& lhs,
                  const std::vector<runtime::GradTarget>& rhs) {
  return std::ranges::equal(lhs, rhs, [](const auto& a, const auto& b) {
    return a.argument == b.argument && a.capture == b.capture && a.value == b.value;
  });
}

bool same_captures(const std::vector<runtime::Capture>& lhs,
                   const std::vector<runtime::Capture>& rhs) {
  return std::ranges::equal(lhs, rhs, [](const auto& a, const auto& b) {
    return a.tensor->cell() == b.tensor->cell() && a.value == b.value;
  });
}

bool same_writes(const std::vector<runtime::StateWrite>& lhs,
                 const std::vector<runtime::StateWrite>& rhs) {
  const auto cell_of = [](const runtime::StateWrite& write) {
    return write.tensor == nullptr ? nullptr : write.tensor->cell().get();
  };
  return std::ranges::equal(lhs, rhs, [&](const auto& a, const auto& b) {
    return a.argument == b.argument && cell_of(a) == cell_of(b) && a.value == b.value;
  });
}

// A real attribute that is a whole number, such as the count that a mean divides by.
std::optional<int64_t> whole_number(const ir::AttrValue& attr) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: below it every whole number is a double
  const auto* real = std::get_if<double>(&attr);
  const bool is_whole = real != nullptr && std::abs(*real) < kExact && std::trunc(*real) == *real;
  return is_whole ? std::optional(static_cast<int64_t>(*real)) : std::nullopt;
}

// The user's line comes last.
[[noreturn]] void fail(const ir::Node& node, const std::string& what) {
  std::string text = std::string(node.op->name) + ": " + what;
  if (node.location != nullptr) {
    text += "\n  at " + node.location->file + ":" + std::to_string(node.location->line);
  }
  fail(text);
}

}  // namespace

SizedTrace::SizedTrace(const runtime::Trace& trace, int64_t size, const runtime::Trace& other,
                       int64_t other_size)
    : trace_(trace), size_(size), other_size_(other_size) {
  const std::vector<ir::Node>& nodes = trace.graph.nodes();
  const std::vector<ir::Node>& others = other.graph.nodes();
  if (nodes.size() != others.size()) {
    fail(std::to_string(nodes.size()) + " operations at " + std::to_string(size) + ", " +
         std::to_string(others.size()) + " at " + std::to_string(other_size));
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const bool is_same = nodes[i].op == others[i].op && nodes[i].inputs == others[i].inputs &&
                         nodes[i].outputs == others[i].outputs &&
                         nodes[i].stop_gradient == others[i].stop_gradient;
    if (!is_same) fail(nodes[i], "another operation or operand");
    compare_attrs(i, nodes[i], others[i]);
  }
  compare_values(other);
  check(other, other_size);
}

void SizedTrace::compare_values(const runtime::Trace& other) {
  const bool is_same =
      trace_.results == other.results && trace_.result_tracks == other.result_tracks &&
      trace_.arguments == other.arguments && same_captures(trace_.captures, other.captures) &&
      same_writes(trace_.writes, other.writes) && same_targets(trace_.targets, other.targets) &&
      trace_.draws.size() == other.draws.size() && trace_.backwards == other.backwards;
  if (!is_same) fail("other tensors are read, written or returned");
  for (const ir::ValueId argument : trace_.arguments) {
    sized_arguments_.push_back(trace_.graph.type(argument) != other.graph.type(argument));
  }
}

SizedTrace::Affine SizedTrace::affine(int64_t value, int64_t other, size_t node, size_t attr) {
  const int64_t rise = other - value;
  const int64_t run = other_size_ - size_;
  if (rise % run != 0) {
    fail(trace_.graph.nodes()[node], "attribute " + std::to_string(attr) + " is " +
                                         std::to_string(value) + " at " + std::to_string(size_) +
                                         ", " + std::to_string(other) + " at " +
                                         std::to_string(other_size_));
  }
  const Affine found{rise / run, value - rise / run * size_};
  const bool is_small =
      std::abs(found.factor) < kCertainCoefficient && std::abs(found.offset) < kCertainCoefficient;
  is_certain_ = is_certain_ && (found.factor == 0 || is_small);
  return found;
}

void SizedTrace::compare_attrs(size_t node, const ir::Node& mine, const ir::Node& others) {
  const int offset = mine.op->is(ir::kRandom) ? mine.op->attr_index("offset") : -1;
  for (size_t i = 0; i < mine.attrs.size(); ++i) {
    if (static_cast<int>(i) == offset) continue;  // follows from the sizes
    compare_attr(node, i, mine.attrs[i], others.attrs[i]);
  }
}

void SizedTrace::compare_attr(size_t node, size_t attr, const ir::AttrValue& mine,
                              const ir::AttrValue& others) {
  if (mine == others) return;
  const auto* number = std::get_if<int64_t>(&mine);
  const auto* other_number = std::get_if<int64_t>(&others);
  if (number != nullptr && other_number != nullptr) {
    places_.push_back({node, attr, 0, affine(*number, *other_number, node, attr)});
    return;
  }
  const std::optional<int64_t> whole = whole_number(mine);
  const std::optional<int64_t> other_whole = whole_number(others);
  if (whole && other_whole) {
    places_.push_back({node, attr, 0, affine(*whole, *other_whole, node, attr)});
    return;
  }
  const auto* list = std::get_if<ir::Ints>(&mine);
  const auto* other_list = std::get_if<ir::Ints>(&others);
  const bool are_lists = list != nullptr && other_list != nullptr;
  if (!are_lists || list->size() != other_list->size()) {
    fail(trace_.graph.nodes()[node], "attribute " + std::to_string(attr) + " differs");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    if ((*list)[i] == (*other_list)[i]) continue;
    places_.push_back({node, attr, i, affine((*list)[i], (*other_list)[i], node, attr)});
  }
}

// By gradient that a recorded backward takes: the result whose type it has.
std::unordered_map<uint32_t, ir::ValueId> SizedTrace::roots_of_seeds() const {
  std::unordered_map<uint32_t, ir::ValueId> roots;
  const std::vector<size_t> places = runtime::differentiable_results(trace_);
  for (const runtime::RecordedBackward& backward : trace_.backwards) {
    auto seed = backward.seeds.begin();
    for (size_t i = 0; i < places.size(); ++i) {
      if (backward.mask[i]) roots.emplace(index(*seed++), trace_.results[places[i]]);
    }
  }
  return roots;
}

runtime::Trace SizedTrace::at(int64_t size) const {
  runtime::Trace result = trace_;
  result.graph = ir::Graph();
  for (runtime::Draw& draw : result.draws) draw.counters = 0;
  std::vector<ir::Role> roles(trace_.graph.num_values());
  for (const ir::Input& input : trace_.graph.inputs()) roles[index(input.value)] = input.role;
  const auto roots = roots_of_seeds();
  auto place = places_.begin();
  for (size_t value = 0; value < trace_.graph.num_values();) {
    const ir::ValueId id{static_cast<uint32_t>(value)};
    const int producer = trace_.graph.producer(id);
    if (producer < 0) {
      ir::ValueType type = trace_.graph.type(id);
      const auto argument = std::ranges::find(trace_.arguments, id);
      const auto at = static_cast<size_t>(argument - trace_.arguments.begin());
      if (argument != trace_.arguments.end() && sized_arguments_[at])
        type.shape = type.shape.with(0, size);
      if (const auto root = roots.find(index(id)); root != roots.end()) {
        type = result.graph.type(root->second);
      }
      result.graph.add_input(roles[value], std::move(type));
      ++value;
      continue;
    }
    ir::Node node = trace_.graph.nodes()[static_cast<size_t>(producer)];
    for (; place != places_.end() && place->node == static_cast<size_t>(producer); ++place) {
      ir::AttrValue& attr = node.attrs[place->attr];
      if (auto* list = std::get_if<ir::Ints>(&attr)) {
        (*list)[place->element] = place->value.at(size);
      } else if (std::holds_alternative<double>(attr)) {
        attr = static_cast<double>(place->value.at(size));
      } else {
        attr = place->value.at(size);
      }
    }
    std::vector<std::optional<ir::ValueType>> types;
    for (const auto& input : node.inputs) {
      types.push_back(input ? std::optional(result.graph.type(*input)) : std::nullopt);
    }
    const ir::ValueTypes outputs = ir::infer(*node.op, types, node.attrs, node.location);
    if (node.op->is(ir::kRandom)) {
      const auto draw = std::ranges::find(result.draws, *node.inputs.back(), &runtime::Draw::value);
      node.attrs[static_cast<size_t>(node.op->attr_index("offset"))] = draw->counters;
      draw->counters += runtime::counters_of(outputs.front().num_elements());
    }
    value += node.outputs.size();
    result.graph.add_node(std::move(node), outputs);
  }
  return result;
}

SizedTrace::SizedTrace(runtime::Trace trace, int64_t size, std::vector<bool> sized_arguments)
    : trace_(std::move(trace)),
      size_(size),
      other_size_(size),
      sized_arguments_(std::move(sized_arguments)) {}

std::vector<SizedTrace::SavedPlace> SizedTrace::save() const {
  std::vector<SavedPlace> saved;
  for (const Place& place : places_) {
    saved.push_back({static_cast<int64_t>(place.node), static_cast<int64_t>(place.attr),
                     static_cast<int64_t>(place.element), place.value.factor, place.value.offset});
  }
  return saved;
}

SizedTrace SizedTrace::restore(const runtime::Trace& trace, int64_t size,
                               const std::vector<SavedPlace>& places,
                               std::vector<bool> sized_arguments) {
  const auto require = [](bool is_good) {
    if (is_good) return;
    throw Error(ErrorKind::kUser,
                "load_compiled: the file's sizes do not fit its graph; save it again");
  };
  require(size >= 0 && size <= kMostSaved);
  require(sized_arguments.size() == trace.arguments.size());
  for (size_t i = 0; i < sized_arguments.size(); ++i) {
    const Shape& shape = trace.graph.type(trace.arguments[i]).shape;
    const bool has_size = shape.rank() > 0 && shape[0] == size;
    require(!sized_arguments[i] || has_size);
  }
  SizedTrace made(trace, size, std::move(sized_arguments));
  const std::vector<ir::Node>& nodes = trace.graph.nodes();
  size_t last = 0;
  for (const auto& [node, attr, element, factor, offset] : places) {
    const auto is_place = [](int64_t place, size_t count) {
      return place >= 0 && static_cast<size_t>(place) < count;
    };
    require(is_place(node, nodes.size()) && static_cast<size_t>(node) >= last);
    last = static_cast<size_t>(node);
    require(is_place(attr, nodes[last].attrs.size()));
    const ir::AttrValue& value = nodes[last].attrs[static_cast<size_t>(attr)];
    const auto* list = std::get_if<ir::Ints>(&value);
    const bool is_number =
        std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
    require(list != nullptr ? is_place(element, list->size()) : is_number);
    require(is_bounded(factor) && is_bounded(offset));
    made.places_.push_back(
        {last, static_cast<size_t>(attr), static_cast<size_t>(element), Affine{factor, offset}});
  }
  const bool is_same = ir::structure_key(made.at(size).graph) == ir::structure_key(trace.graph);
  require(is_same);
  return made;
}

void SizedTrace::check(const runtime::Trace& trace, int64_t size) const {
  const runtime::Trace made = at(size);
  if (ir::structure_key(made.graph) == ir::structure_key(trace.graph)) return;
  fail("shapes at " + std::to_string(size) + " are not those that follow from " +
       std::to_string(size_));
}

}  // namespace lucid::compile
