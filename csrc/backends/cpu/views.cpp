#include "backends/cpu/views.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backends/cpu/kernel.h"
#include "support/errors.h"

namespace lucid::cpu {
namespace {

// Strides of a value's axes in the memory of `made`, whose axes lie in the value's own memory as
// `view` tells, if both have the same elements in another order.
std::optional<StridedView> inverse(const Shape& value, const Shape& made, const StridedView& view) {
  if (view.offset != 0 || value.num_elements() != made.num_elements()) return std::nullopt;
  const StridedView from = dense_view(value);
  const StridedView to = dense_view(made);
  StridedView result;
  for (int axis = 0; axis < value.rank(); ++axis) {
    if (value[axis] == 1) continue;
    int found = 0;
    const auto fits = [&](int other) {
      return made[other] == value[axis] &&
             view.strides[static_cast<size_t>(other)] == from.strides[static_cast<size_t>(axis)];
    };
    while (found < made.rank() && !fits(found)) ++found;
    if (found == made.rank()) return std::nullopt;
    result.strides[static_cast<size_t>(axis)] = to.strides[static_cast<size_t>(found)];
  }
  return result;
}

// `value` lies in the memory of `made` as `view` tells, and that lies as `place` tells: where the
// value does, if each of its axes is one of `made`.
std::optional<StridedView> relocated(const Shape& value, const StridedView& view, const Shape& made,
                                     const StridedView& place) {
  const StridedView dense = dense_view(made);
  StridedView result{place.offset, {}};
  for (int axis = 0; axis < value.rank(); ++axis) {
    const int64_t stride = view.strides[static_cast<size_t>(axis)];
    if (value[axis] == 1) continue;
    int found = 0;
    while (found < made.rank() &&
           (made[found] != value[axis] || dense.strides[static_cast<size_t>(found)] != stride)) {
      ++found;
    }
    if (found == made.rank()) return std::nullopt;
    result.strides[static_cast<size_t>(axis)] = place.strides[static_cast<size_t>(found)];
  }
  return result;
}

class ViewPass {
 public:
  explicit ViewPass(const ir::Graph& graph)
      : graph_(graph),
        num_readers_(graph.num_values(), 0),
        num_views_(graph.num_values(), 0),
        viewed_bytes_(graph.num_values(), 0),
        reordered_(graph.num_values()),
        is_written_before_(graph.nodes().size(), false),
        local_(graph.num_values()) {
    for (size_t value = 0; value < graph.num_values(); ++value) {
      same_.push_back(ir::ValueId{static_cast<uint32_t>(value)});
    }
  }

  ViewedGraph run() {
    find_sources();
    count_readers();
    reorder_outputs();
    find_sources();
    join_outputs();
    find_sources();
    count_readers();
    find_viewed_bytes();
    drop_unread();
    for (const ir::Input& input : graph_.inputs()) {
      local_[index(input.value)] = result_.graph.add_input(input.role, graph_.type(input.value));
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (is_kept_[i]) add(i);
    }
    std::vector<ir::ValueId> outputs;
    for (const ir::ValueId output : graph_.outputs()) {
      outputs.push_back(local(same_[index(output)]));
    }
    result_.graph.set_outputs(std::move(outputs));
    return std::move(result_);
  }

 private:
  // The earliest value that holds a value's elements.
  struct Source {
    ir::ValueId base;
    StridedView view;
  };

  Source dense(ir::ValueId value) const { return {value, dense_view(graph_.type(value).shape)}; }
  const Source& source(ir::ValueId value) const { return sources_[index(value)]; }

  void find_sources() {
    sources_.clear();
    for (size_t value = 0; value < graph_.num_values(); ++value) {
      sources_.push_back(dense(ir::ValueId{static_cast<uint32_t>(value)}));
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const ir::Node& node = graph_.nodes()[i];
      for (const ir::ValueId output : node.outputs) {
        if (reordered_[index(output)]) sources_[index(output)] = *reordered_[index(output)];
      }
      if (is_written_before_[i]) {
        sources_[index(node.outputs.front())] = dense(same_[index(node.outputs.front())]);
      }
      if (!is_view(node) || is_written_before_[i]) continue;
      const Source& from = source(node.in(0));
      const std::optional<StridedView> made = view_of(node, from.view);
      if (made) sources_[index(node.outputs.front())] = {from.base, *made};
    }
  }

  static bool is_view(const ir::Node& node) {
    const KernelRow* row = find_row(node.op->name);
    return row != nullptr && row->view != nullptr;
  }

  std::optional<StridedView> view_of(const ir::Node& node, const StridedView& from) const {
    return find_row(node.op->name)->view({node, graph_}, from);
  }

  bool can_read(const ir::Node& node, size_t input, const StridedView& from) const {
    const KernelRow* row = find_row(node.op->name);
    return row != nullptr && row->reads != nullptr && row->reads({node, graph_}, input, from);
  }

  bool can_view(const ir::Node& node, size_t input) const {
    if (!node.has(input) || source(node.in(input)).base == node.in(input)) return false;
    return can_read(node, input, source(node.in(input)).view);
  }

  void count_readers() {
    std::ranges::fill(num_readers_, 0);
    std::ranges::fill(num_views_, 0);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (!is_written_before_[i]) count_reads(graph_.nodes()[i]);
    }
    for (const ir::ValueId output : graph_.outputs()) ++num_readers_[index(output)];
  }

  void count_reads(const ir::Node& node) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i]) continue;
      ++num_readers_[index(*node.inputs[i])];
      num_views_[index(*node.inputs[i])] += can_view(node, i) ? 1 : 0;
    }
  }

  // Results that a view node puts into another order are written in that order, if their other
  // readers can do with it.
  void reorder_outputs() {
    std::vector<std::vector<size_t>> readers(graph_.num_values());
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      for (const auto& input : graph_.nodes()[i].inputs) {
        if (input) readers[index(*input)].push_back(i);
      }
    }
    for (const ir::ValueId output : graph_.outputs()) readers[index(output)].clear();
    for (const ir::Node& node : graph_.nodes()) {
      const KernelRow* row = find_row(node.op->name);
      if (row == nullptr || row->writes == nullptr) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        reorder_output(node, i, readers[index(node.outputs[i])]);
      }
    }
  }

  void reorder_output(const ir::Node& node, size_t output, const std::vector<size_t>& readers) {
    const ir::ValueId value = node.outputs[output];
    std::vector<size_t> movers;
    for (const size_t reader : readers) {
      if (is_view(graph_.nodes()[reader])) movers.push_back(reader);
    }
    if (movers.empty() || !move_alike(value, movers)) return;
    const ir::ValueId moved = graph_.nodes()[movers.front()].outputs.front();
    const Shape& shape = graph_.type(moved).shape;
    const auto view = view_of(graph_.nodes()[movers.front()], dense(value).view);
    const auto place = inverse(graph_.type(value).shape, shape, *view);
    if (!place || !find_row(node.op->name)->writes({node, graph_}, output, *place)) return;
    for (const size_t reader : readers) {
      const ir::Node& reading = graph_.nodes()[reader];
      if (!is_view(reading) && !can_read_all(reading, value, *place)) return;
    }
    reordered_[index(value)] = Source{moved, *place};
    for (const size_t mover : movers) {
      is_written_before_[mover] = true;
      same_[index(graph_.nodes()[mover].outputs.front())] = moved;
    }
  }

  // A node of whose results, moved or not, some other value consists makes that value itself.
  void join_outputs() {
    std::vector<int> num_reads(graph_.num_values(), 0);
    for (const ir::Node& node : graph_.nodes()) {
      for (const auto& input : node.inputs) {
        if (input) ++num_reads[index(*input)];
      }
    }
    for (const ir::ValueId output : graph_.outputs()) ++num_reads[index(output)];
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const KernelRow* row = find_row(graph_.nodes()[i].op->name);
      if (row != nullptr && row->joins != nullptr) join_results(i, num_reads);
    }
  }

  void join_results(size_t joint, const std::vector<int>& num_reads) {
    const ir::Node& node = graph_.nodes()[joint];
    std::vector<ir::ValueId> results;
    for (const auto& piece : node.inputs) {
      const std::optional<ir::ValueId> result = moved_result(*piece, num_reads);
      if (!result) return;
      results.push_back(*result);
    }
    const int maker = graph_.producer(results.front());
    if (maker < 0) return;
    const ir::Node& making = graph_.nodes()[static_cast<size_t>(maker)];
    const KernelRow* row = find_row(making.op->name);
    if (row == nullptr || row->writes == nullptr) return;
    if (!std::ranges::is_permutation(results, making.outputs)) return;
    std::vector<StridedView> places;
    for (size_t i = 0; i < results.size(); ++i) {
      const auto output = std::ranges::find(making.outputs, results[i]) - making.outputs.begin();
      const auto place = place_in(node, i, results[i]);
      if (!place) return;
      if (!row->writes({making, graph_}, static_cast<size_t>(output), *place)) return;
      places.push_back(*place);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      reordered_[index(results[i])] = Source{node.outputs.front(), places[i]};
    }
    is_written_before_[joint] = true;
  }

  // The result that a value is moved from, if nothing else reads either or what lies between them.
  std::optional<ir::ValueId> moved_result(ir::ValueId value,
                                          const std::vector<int>& num_reads) const {
    while (num_reads[index(value)] == 1) {
      const int producer = graph_.producer(value);
      if (producer < 0) return std::nullopt;
      const ir::Node& node = graph_.nodes()[static_cast<size_t>(producer)];
      if (!is_view(node)) return value;
      value = node.in(0);
    }
    return std::nullopt;
  }

  // Where a result lies in the value that a node joins, of which it is the piece `input`.
  std::optional<StridedView> place_in(const ir::Node& joint, size_t input,
                                      ir::ValueId result) const {
    const Source stored = reordered_[index(result)].value_or(dense(result));
    const Shape& piece = graph_.type(joint.in(input)).shape;
    const Shape& made = graph_.type(stored.base).shape;
    const Source& from = source(joint.in(input));
    const bool is_whole = from.base == stored.base && from.view.offset == 0 &&
                          from.view.strides == dense_view(piece).strides &&
                          piece.num_elements() == made.num_elements();
    if (!is_whole) return std::nullopt;
    const KernelRow* row = find_row(joint.op->name);
    const auto place = reshaped_view(piece, row->joins({joint, graph_}, input), made);
    if (!place) return std::nullopt;
    return relocated(graph_.type(result).shape, stored.view, made, *place);
  }

  // True if the nodes move a value's elements in one way, and what they make is read as it is.
  // (Where memory is short a value is made twice.)
  bool move_alike(ir::ValueId value, const std::vector<size_t>& movers) const {
    std::optional<StridedView> first;
    for (const size_t mover : movers) {
      const ir::Node& node = graph_.nodes()[mover];
      const ir::ValueId moved = node.outputs.front();
      const auto view = view_of(node, dense(value).view);
      if (node.op->is(ir::kAlias) || is_only_viewed(moved) || !view) return false;
      const ir::ValueType& type = graph_.type(graph_.nodes()[movers.front()].outputs.front());
      if (!first) first = view;
      const bool is_same = view->offset == first->offset && view->strides == first->strides &&
                           graph_.type(moved) == type;
      if (!is_same) return false;
    }
    return true;
  }

  bool can_read_all(const ir::Node& node, ir::ValueId value, const StridedView& from) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == value && !can_read(node, i, from)) return false;
    }
    return true;
  }

  // True if the value need not be made: all that read it can read its source.
  bool is_only_viewed(ir::ValueId value) const {
    return num_views_[index(value)] > 0 && num_views_[index(value)] == num_readers_[index(value)];
  }

  void find_viewed_bytes() {
    for (const ir::Node& node : graph_.nodes()) {
      for (const ir::ValueId output : node.outputs) {
        if (!is_only_viewed(output)) continue;
        viewed_bytes_[index(source(output).base)] += graph_.type(output).size_bytes();
      }
    }
  }

  // A source lives as long as its views: a small part of a large value is better copied.
  bool views(const ir::Node& node, size_t input) const {
    if (!can_view(node, input) || !is_only_viewed(node.in(input))) return false;
    const ir::ValueId base = source(node.in(input)).base;
    return 2 * viewed_bytes_[index(base)] >= graph_.type(base).size_bytes();
  }

  void drop_unread() {
    const auto& nodes = graph_.nodes();
    is_kept_.assign(nodes.size(), true);
    std::vector<int> readers(graph_.num_values(), 0);
    for (const ir::ValueId output : graph_.outputs()) ++readers[index(output)];
    for (size_t i = nodes.size(); i-- > 0;) {
      is_kept_[i] = !is_written_before_[i] &&
                    (!is_view(nodes[i]) || readers[index(nodes[i].outputs.front())] > 0);
      if (!is_kept_[i]) continue;
      for (size_t k = 0; k < nodes[i].inputs.size(); ++k) {
        if (nodes[i].inputs[k]) ++readers[index(read_value(nodes[i], k))];
      }
    }
  }

  ir::ValueId read_value(const ir::Node& node, size_t input) const {
    return views(node, input) ? source(node.in(input)).base : same_[index(node.in(input))];
  }

  ir::ValueId local(ir::ValueId value) const {
    if (const std::optional<ir::ValueId>& found = local_[index(value)]) return *found;
    throw Error(ErrorKind::kInternal,
                "views: %" + std::to_string(index(value)) + " is read before it is made");
  }

  void add(size_t place) {
    const ir::Node& node = graph_.nodes()[place];
    ir::Node copy = node;
    copy.outputs.clear();
    NodeViews views_of_node;
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      if (!node.inputs[k]) continue;
      copy.inputs[k] = local(read_value(node, k));
      if (!views(node, k)) continue;
      views_of_node.inputs.resize(node.inputs.size());
      views_of_node.inputs[k] = source(node.in(k)).view;
    }
    std::vector<ir::ValueId> stored;
    std::vector<ir::ValueType> types;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      ir::ValueId value = node.outputs[k];
      if (const std::optional<Source>& source = reordered_[index(value)]) {
        views_of_node.outputs.resize(node.outputs.size());
        views_of_node.outputs[k] = source->view;
        value = source->base;
      }
      if (std::ranges::find(stored, value) != stored.end()) continue;  // joined with another one
      stored.push_back(value);
      types.push_back(graph_.type(value));
    }
    const std::vector<ir::ValueId> made = result_.graph.add_node(std::move(copy), types);
    for (size_t k = 0; k < made.size(); ++k) local_[index(stored[k])] = made[k];
    result_.origins.push_back(place);
    result_.views.push_back(std::move(views_of_node));
  }

  const ir::Graph& graph_;
  std::vector<Source> sources_;        // by value
  std::vector<int> num_readers_;       // by value
  std::vector<int> num_views_;         // by value: readers that can read its source
  std::vector<int64_t> viewed_bytes_;  // by value: of all that is only read through it
  // By value: the value that a result is stored as, which an equal node would have made later.
  std::vector<std::optional<Source>> reordered_;
  std::vector<bool> is_written_before_;  // by node: such a node
  std::vector<ir::ValueId> same_;        // by value: the first one that such nodes make
  std::vector<bool> is_kept_;            // by node
  // By value: its place in the new graph, if it has one yet.
  std::vector<std::optional<ir::ValueId>> local_;
  ViewedGraph result_;
};

}  // namespace

ViewedGraph use_views(const ir::Graph& graph) { return ViewPass(graph).run(); }

}  // namespace lucid::cpu
