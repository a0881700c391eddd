#include "backends/chain.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "passes/split.h"

namespace lucid::backends {
namespace {

using ir::ValueId;

/// Who reads the values of a graph, an alias counted as its root.
class Lifetimes {
 public:
  explicit Lifetimes(const ir::Graph& graph)
      : graph_(graph), roots_(graph.num_values()), last_read_(graph.num_values(), -1) {
    std::iota(roots_.begin(), roots_.end(), 0u);
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
      const ir::Node& node = graph.nodes()[i];
      if (node.op->is(ir::kAlias)) {
        roots_[index(node.outputs.front())] = roots_[index(node.in(0))];
        continue;
      }
      for (const auto& input : node.inputs) {
        if (input) last_read_[roots_[index(*input)]] = static_cast<int>(i);
      }
    }
    is_result_.assign(graph.num_values(), false);
    for (const ValueId output : graph.outputs()) is_result_[index(output)] = true;
  }

  uint32_t root(ValueId value) const { return roots_[index(value)]; }
  int last_read(ValueId value) const { return last_read_[index(value)]; }
  /// Bytes of the outputs of a node that are no results of the graph.
  int64_t made_by(size_t node) const {
    if (graph_.nodes()[node].op->is(ir::kAlias)) return 0;
    int64_t bytes = 0;
    for (const ValueId output : graph_.nodes()[node].outputs) bytes += size_of(output);
    return bytes;
  }
  /// Bytes of such outputs of earlier nodes that nobody reads after that node.
  int64_t freed_after(size_t node) const {
    int64_t bytes = 0;
    std::vector<uint32_t> seen;
    const auto count = [&](ValueId value) {
      const uint32_t id = root(value);
      if (graph_.producer(ValueId{id}) < 0 || std::ranges::find(seen, id) != seen.end()) return;
      seen.push_back(id);
      if (std::max(last_read_[id], graph_.producer(ValueId{id})) == static_cast<int>(node)) {
        bytes += size_of(ValueId{id});
      }
    };
    if (graph_.nodes()[node].op->is(ir::kAlias)) return 0;
    for (const auto& input : graph_.nodes()[node].inputs) {
      if (input) count(*input);
    }
    for (const ValueId output : graph_.nodes()[node].outputs) count(output);
    return bytes;
  }

 private:
  int64_t size_of(ValueId value) const {
    return is_result_[index(value)] ? 0 : graph_.type(value).size_bytes();
  }

  const ir::Graph& graph_;
  std::vector<uint32_t> roots_;
  std::vector<int> last_read_;  // by root
  std::vector<bool> is_result_;
};

/// The graph with every alias made anew in each piece that reads it, so that only what nodes
/// compute crosses the cuts.
class Localizer {
 public:
  Localizer(const ir::Graph& graph, const std::vector<int>& pieces)
      : graph_(graph), pieces_(pieces), moved_(graph.num_values()) {}

  ir::Graph run(passes::Segmentation& segmentation) {
    for (const ir::Input& input : graph_.inputs()) {
      moved_[index(input.value)] = result_.add_input(input.role, graph_.type(input.value));
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (!graph_.nodes()[i].op->is(ir::kAlias)) copy(graph_.nodes()[i], pieces_[i]);
    }
    std::vector<ValueId> outputs;
    for (const ValueId output : graph_.outputs()) outputs.push_back(at(output, home(output)));
    result_.set_outputs(std::move(outputs));
    segmentation.segments = std::move(segments_);
    segmentation.num_forward_nodes = segmentation.segments.size();
    segmentation.num_segments = pieces_.empty() ? 1 : std::ranges::max(pieces_) + 1;
    return std::move(result_);
  }

 private:
  const ir::Node* maker(ValueId value) const {
    const int place = graph_.producer(value);
    return place < 0 ? nullptr : &graph_.nodes()[static_cast<size_t>(place)];
  }

  // The piece that computes what a result shows; of an input the last.
  int home(ValueId value) const {
    const ir::Node* node = maker(value);
    if (node == nullptr) return pieces_.empty() ? 0 : std::ranges::max(pieces_);
    if (node->op->is(ir::kAlias)) return home(node->in(0));
    return pieces_[static_cast<size_t>(graph_.producer(value))];
  }

  ValueId at(ValueId value, int piece) {
    const ir::Node* node = maker(value);
    if (node == nullptr || !node->op->is(ir::kAlias)) return *moved_[index(value)];
    const auto known = aliases_.find({piece, index(value)});
    if (known != aliases_.end()) return known->second;
    ir::Node alias = *node;
    alias.inputs.front() = at(node->in(0), piece);
    const ValueId made = add(std::move(alias), *node, piece).front();
    aliases_.emplace(std::pair(piece, index(value)), made);
    return made;
  }

  void copy(const ir::Node& node, int piece) {
    ir::Node moved = node;
    for (auto& input : moved.inputs) {
      if (input) input = at(*input, piece);
    }
    const std::vector<ValueId> made = add(std::move(moved), node, piece);
    for (size_t i = 0; i < made.size(); ++i) moved_[index(node.outputs[i])] = made[i];
  }

  std::vector<ValueId> add(ir::Node node, const ir::Node& like, int piece) {
    std::vector<ir::ValueType> types;
    for (const ValueId output : like.outputs) types.push_back(graph_.type(output));
    segments_.push_back(piece);
    return result_.add_node(std::move(node), types);
  }

  const ir::Graph& graph_;
  const std::vector<int>& pieces_;
  ir::Graph result_;
  std::vector<int> segments_;
  std::vector<std::optional<ValueId>> moved_;
  std::map<std::pair<int, uint32_t>, ValueId> aliases_;
};

}  // namespace

Cuts cut_to_limit(const ir::Graph& graph, int64_t limit_bytes) {
  const Lifetimes lifetimes(graph);
  Cuts cuts;
  int64_t held = 0;     // by the piece at hand and those before it
  int64_t dropped = 0;  // of that, what the piece at hand reads last
  int piece = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const int64_t made = lifetimes.made_by(i);
    const bool is_first = i == 0;
    if (!is_first && made > 0 && held + made > limit_bytes) {
      ++piece;
      held -= std::exchange(dropped, 0);
    }
    held += made;
    dropped += lifetimes.freed_after(i);
    cuts.peak_bytes = std::max(cuts.peak_bytes, held);
    cuts.pieces.push_back(piece);
  }
  return cuts;
}

int64_t least_chain_bytes(const ir::Graph& graph) {
  const Lifetimes lifetimes(graph);
  int64_t held = 0;
  int64_t peak = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    held += lifetimes.made_by(i);
    peak = std::max(peak, held);
    held -= lifetimes.freed_after(i);
  }
  return peak;
}

Chain::Chain(const ir::Graph& graph, const Cuts& cuts, const Compile& compile) {
  passes::Segmentation segmentation;
  const ir::Graph localized = Localizer(graph, cuts.pieces).run(segmentation);
  constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  std::vector<uint32_t> slot_of(localized.num_values(), kNone);
  uint32_t num_slots = 0;
  for (const ir::Input& input : localized.inputs()) {
    slot_of[index(input.value)] = num_slots++;
    memory_.inputs += localized.type(input.value).size_bytes();
  }
  for (const passes::Piece& piece : passes::split(localized, segmentation)) {
    if (piece.graph.nodes().empty() && piece.outputs.empty()) continue;
    Link link;
    link.executable = compile(piece.graph);
    for (const ValueId input : piece.inputs) link.inputs.push_back(slot_of[index(input)]);
    for (const ValueId output : piece.outputs) {
      // A result that is an input gets a buffer of its own.
      const bool is_new = slot_of[index(output)] == kNone || localized.producer(output) < 0;
      if (is_new) slot_of[index(output)] = num_slots++;
      link.outputs.push_back(slot_of[index(output)]);
    }
    links_.push_back(std::move(link));
  }
  for (const ValueId output : localized.outputs()) {
    output_slots_.push_back(slot_of[index(output)]);
    memory_.outputs += localized.type(output).size_bytes();
  }
  memory_.arena_peak = cuts.peak_bytes;
  find_dead(localized.inputs().size(), num_slots);
}

void Chain::find_dead(size_t num_inputs, size_t num_slots) {
  std::vector<size_t> last(num_slots, 0);
  for (size_t i = 0; i < links_.size(); ++i) {
    for (const uint32_t slot : links_[i].inputs) last[slot] = i;
    for (const uint32_t slot : links_[i].outputs) last[slot] = i;
  }
  for (const uint32_t slot : output_slots_) last[slot] = links_.size();
  for (size_t slot = num_inputs; slot < num_slots; ++slot) {
    if (last[slot] < links_.size()) links_[last[slot]].dead.push_back(static_cast<uint32_t>(slot));
  }
}

std::vector<BufferRef> Chain::run(std::span<const BufferRef> inputs,
                                  const ir::Attrs* run_time_attrs) const {
  std::vector<BufferRef> table(inputs.begin(), inputs.end());
  for (const Link& link : links_) {
    std::vector<BufferRef> given;
    for (const uint32_t slot : link.inputs) given.push_back(table[slot]);
    std::vector<BufferRef> made = link.executable->run(given, run_time_attrs);
    for (size_t i = 0; i < made.size(); ++i) {
      if (&link != &links_.back()) made[i]->data();  // waits: only then is its memory free
      if (link.outputs[i] >= table.size()) table.resize(link.outputs[i] + 1);
      table[link.outputs[i]] = std::move(made[i]);
    }
    for (const uint32_t slot : link.dead) table[slot].reset();
  }
  std::vector<BufferRef> outputs;
  for (const uint32_t slot : output_slots_) outputs.push_back(table[slot]);
  return outputs;
}

bool Chain::is_loaded() const {
  return std::ranges::all_of(links_, [](const Link& link) { return link.executable->is_loaded(); });
}

}  // namespace lucid::backends
