#include "passes/split.h"

#include <algorithm>
#include <optional>

namespace lucid::passes {
namespace {

class Splitter {
 public:
  Splitter(const ir::Graph& graph, const Segmentation& segmentation)
      : graph_(graph), segmentation_(segmentation), is_final_(graph.num_values(), false) {
    for (const ir::ValueId output : graph.outputs()) is_final_[index(output)] = true;
  }

  std::vector<Piece> run() {
    find_crossing();
    std::vector<Piece> pieces;
    const int last = last_segment();
    for (int segment = 0; segment < last; ++segment) pieces.push_back(piece(segment));
    for (int place = last; place <= 2 * last; ++place) pieces.push_back(piece(place));
    std::erase_if(pieces,
                  [&](const Piece& p) { return p.segment != last && p.graph.nodes().empty(); });
    return pieces;
  }

 private:
  int last_segment() const { return segmentation_.num_segments - 1; }

  // Pieces are numbered in the order in which they run: forward 0 .. last - 1, the last segment,
  // backward of segment s at 2 * last - s.
  int piece_of_node(size_t node) const {
    const int segment = segmentation_.segments[node];
    const bool is_forward = node < segmentation_.num_forward_nodes;
    return is_forward ? segment : 2 * last_segment() - segment;
  }

  int segment_of_piece(int place) const {
    return place <= last_segment() ? place : 2 * last_segment() - place;
  }

  bool is_backward(int place) const { return place > last_segment(); }

  // The piece that makes a value; inputs of the graph are made before all pieces.
  int maker(ir::ValueId value) const {
    const int node = graph_.producer(value);
    return node < 0 ? -1 : piece_of_node(static_cast<size_t>(node));
  }

  // True if a backward piece makes again what that forward piece made.
  bool recomputes(int reader, int made_in) const {
    return is_backward(reader) && made_in >= 0 &&
           made_in < last_segment() - segmentation_.num_kept && segment_of_piece(reader) == made_in;
  }

  // Only what is pure may run twice.
  bool is_kept(ir::ValueId value) const {
    const int node = graph_.producer(value);
    return node >= 0 && !graph_.nodes()[static_cast<size_t>(node)].op->is(ir::kPure);
  }

  // A value crosses if a piece other than its maker reads it, but for a backward piece that
  // makes it again.
  void find_crossing() {
    crosses_.assign(graph_.num_values(), false);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const int reader = piece_of_node(i);
      for (const auto& input : graph_.nodes()[i].inputs) {
        if (!input) continue;
        const int made_in = maker(*input);
        const bool stays = made_in < 0 || made_in == reader || recomputes(reader, made_in);
        if (!stays || is_kept(*input)) crosses_[index(*input)] = true;
      }
    }
  }

  bool leaves_its_piece(ir::ValueId value) const {
    return crosses_[index(value)] || is_final_[index(value)];
  }

  // The nodes of a piece, those that a backward piece repeats included.
  std::vector<bool> members(int place) const {
    std::vector<bool> chosen(graph_.nodes().size(), false);
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      chosen[i] = chosen[i] || piece_of_node(i) == place;
      if (!chosen[i]) continue;
      for (const auto& input : graph_.nodes()[i].inputs) {
        if (!input || leaves_its_piece(*input) || !recomputes(place, maker(*input))) continue;
        chosen[static_cast<size_t>(graph_.producer(*input))] = true;
      }
    }
    return chosen;
  }

  Piece piece(int place) const {
    const std::vector<bool> chosen = members(place);
    Piece result;
    result.segment = segment_of_piece(place);
    std::vector<std::optional<ir::ValueId>> local(graph_.num_values());
    add_inputs(chosen, place, local, result);
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i]) copy_node(graph_.nodes()[i], local, result.graph);
    }
    add_outputs(place, local, result);
    return result;
  }

  // Reads of values that the piece does not make: graph inputs keep their order and role.
  void add_inputs(const std::vector<bool>& chosen, int place,
                  std::vector<std::optional<ir::ValueId>>& local, Piece& result) const {
    std::vector<bool> is_read(graph_.num_values(), false);
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (!chosen[i]) continue;
      for (const auto& input : graph_.nodes()[i].inputs) {
        if (input && !is_made(*input, chosen)) is_read[index(*input)] = true;
      }
    }
    for (const ir::ValueId output : graph_.outputs()) {
      if (place == last_segment() && graph_.producer(output) < 0) is_read[index(output)] = true;
    }
    const auto add = [&](ir::ValueId value, ir::Role role) {
      local[index(value)] = result.graph.add_input(role, graph_.type(value));
      result.inputs.push_back(value);
      is_read[index(value)] = false;
    };
    for (const ir::Input& input : graph_.inputs()) {
      if (is_read[index(input.value)]) add(input.value, input.role);
    }
    for (size_t value = 0; value < is_read.size(); ++value) {
      if (is_read[value]) add(ir::ValueId{static_cast<uint32_t>(value)}, ir::Role::kCaptured);
    }
  }

  bool is_made(ir::ValueId value, const std::vector<bool>& chosen) const {
    const int node = graph_.producer(value);
    return node >= 0 && chosen[static_cast<size_t>(node)];
  }

  void copy_node(const ir::Node& node, std::vector<std::optional<ir::ValueId>>& local,
                 ir::Graph& to) const {
    ir::Node copy = node;
    for (auto& input : copy.inputs) {
      if (input) input = local[index(*input)];
    }
    std::vector<ir::ValueType> types;
    for (const ir::ValueId output : node.outputs) types.push_back(graph_.type(output));
    const std::vector<ir::ValueId> made = to.add_node(std::move(copy), types);
    for (size_t i = 0; i < made.size(); ++i) local[index(node.outputs[i])] = made[i];
  }

  // What others read and what the step returns; graph inputs that the step returns leave the
  // last segment.
  void add_outputs(int place, const std::vector<std::optional<ir::ValueId>>& local,
                   Piece& result) const {
    std::vector<ir::ValueId> outputs;
    for (size_t i = 0; i < local.size(); ++i) {
      const ir::ValueId value{static_cast<uint32_t>(i)};
      const int made_in = maker(value);
      const bool is_returned_input = made_in < 0 && is_final_[i] && place == last_segment();
      if (!is_returned_input && (made_in != place || !leaves_its_piece(value))) continue;
      result.outputs.push_back(value);
      outputs.push_back(*local[i]);
    }
    result.graph.set_outputs(std::move(outputs));
  }

  const ir::Graph& graph_;
  const Segmentation& segmentation_;
  std::vector<bool> is_final_;
  std::vector<bool> crosses_;
};

}  // namespace

std::vector<Piece> split(const ir::Graph& graph, const Segmentation& segmentation) {
  if (segmentation.num_segments > 1) return Splitter(graph, segmentation).run();
  Piece whole{.graph = graph, .inputs = {}, .outputs = graph.outputs(), .segment = 0};
  for (const ir::Input& input : graph.inputs()) whole.inputs.push_back(input.value);
  return {std::move(whole)};
}

}  // namespace lucid::passes
