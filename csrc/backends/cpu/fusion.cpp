#include "backends/cpu/fusion.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace lucid::cpu {
namespace {

using Place = TileProgram::Place;

// Larger programs push their own tiles out of the cache.
constexpr size_t kMaxMembers = 64;
constexpr size_t kMaxInputs = 24;
// More nodes of others in between would keep operands alive for long.
constexpr size_t kMaxStrangers = 3;
constexpr size_t kMaxOpen = 4;

// Members in order. Nobody but members reads what an open cluster makes.
struct Cluster {
  std::vector<size_t> members;
  std::vector<ir::ValueId> inputs;
  bool is_open = true;

  bool reads(ir::ValueId value) const { return std::ranges::find(inputs, value) != inputs.end(); }
};

class Clustering {
 public:
  explicit Clustering(const ir::Graph& graph)
      : graph_(graph), cluster_of_(graph.nodes().size(), -1) {}

  std::vector<Cluster> run() {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) add(i);
    return std::move(clusters_);
  }

 private:
  const Shape& shape_of(const Cluster& cluster) const { return shape_of(cluster.members.front()); }
  const Shape& shape_of(size_t node) const {
    return graph_.type(graph_.nodes()[node].outputs.front()).shape;
  }

  void add(size_t node) {
    const bool is_fusable = pointwise_tile({graph_.nodes()[node], graph_}).function != nullptr;
    const int chosen = is_fusable ? choose(node) : -1;
    for (const int place : std::vector<int>(open_)) {
      if (chosen >= 0 && place != chosen && reads_from(node, place)) try_merge(place, chosen, node);
    }
    for (const int place : open_) {
      if (place != chosen && reads_from(node, place)) cluster(place).is_open = false;
    }
    std::erase_if(open_, [&](int place) { return !cluster(place).is_open; });
    if (!is_fusable) return;
    if (chosen >= 0) {
      join(node, chosen);
      return;
    }
    if (open_.size() == kMaxOpen) open_.erase(open_.begin());
    clusters_.emplace_back();
    open_.push_back(static_cast<int>(clusters_.size()) - 1);
    join(node, open_.back());
  }

  Cluster& cluster(int place) { return clusters_[static_cast<size_t>(place)]; }

  bool reads_from(size_t node, int place) const {
    return std::ranges::any_of(graph_.nodes()[node].inputs, [&](const auto& input) {
      return input && graph_.producer(*input) >= 0 &&
             cluster_of_[static_cast<size_t>(graph_.producer(*input))] == place;
    });
  }

  bool shares_operand(size_t node, const Cluster& with) const {
    return std::ranges::any_of(graph_.nodes()[node].inputs, [&](const auto& input) {
      return input && graph_.type(*input).num_elements() > 1 && with.reads(*input);
    });
  }

  // Nodes after a cluster's last member that are in no open cluster: those of a neighbour may
  // well end up in the same one.
  size_t strangers_between(const Cluster& before, size_t node) const {
    size_t strangers = 0;
    for (size_t i = node; --i > before.members.back() && strangers <= kMaxStrangers;) {
      const int place = cluster_of_[i];
      if (place < 0 || !clusters_[static_cast<size_t>(place)].is_open) ++strangers;
    }
    return strangers;
  }

  // The open cluster that a node belongs to: one that it reads from, or that reads what it reads.
  int choose(size_t node) {
    int sharing = -1;
    for (const int place : open_) {
      const Cluster& candidate = cluster(place);
      const bool fits = shape_of(candidate) == shape_of(node) &&
                        strangers_between(candidate, node) <= kMaxStrangers &&
                        candidate.members.size() < kMaxMembers &&
                        candidate.inputs.size() + 3 <= kMaxInputs;
      if (!fits) continue;
      if (reads_from(node, place)) return place;
      const bool is_next = node == candidate.members.back() + 1;
      if (is_next && shares_operand(node, candidate)) sharing = place;
    }
    return sharing;
  }

  // A node that reads two open clusters makes them one: neither reads what the other makes, for
  // that would have closed it.
  void try_merge(int from, int into, size_t node) {
    Cluster& source = cluster(from);
    Cluster& target = cluster(into);
    const bool fits = shape_of(source) == shape_of(target) &&
                      strangers_between(source, node) <= kMaxStrangers &&
                      source.members.size() + target.members.size() < kMaxMembers &&
                      source.inputs.size() + target.inputs.size() + 3 <= kMaxInputs;
    if (!fits) return;
    for (const ir::ValueId input : source.inputs) {
      if (!target.reads(input)) target.inputs.push_back(input);
    }
    for (const size_t member : source.members) cluster_of_[member] = into;
    target.members.insert(target.members.end(), source.members.begin(), source.members.end());
    std::ranges::sort(target.members);
    source = Cluster{.members = {}, .inputs = {}, .is_open = false};
    std::erase(open_, from);
  }

  void join(size_t node, int place) {
    Cluster& chosen = cluster(place);
    for (const auto& input : graph_.nodes()[node].inputs) {
      const int producer = input ? graph_.producer(*input) : -1;
      const bool is_own = producer >= 0 && cluster_of_[static_cast<size_t>(producer)] == place;
      if (input && !is_own && !chosen.reads(*input)) chosen.inputs.push_back(*input);
    }
    chosen.members.push_back(node);
    cluster_of_[node] = place;
  }

  const ir::Graph& graph_;
  std::vector<Cluster> clusters_;
  std::vector<int> cluster_of_;  // by node, -1 for none
  std::vector<int> open_;        // oldest first
};

// Lays out one cluster: which values leave it, which registers the others take.
class Assembler {
 public:
  Assembler(const ir::Graph& graph, const Cluster& cluster, const std::vector<int>& last_reader)
      : graph_(graph), cluster_(cluster), last_reader_(last_reader) {
    for (size_t i = 0; i < cluster.inputs.size(); ++i) {
      places_[index(cluster.inputs[i])] = {Place::In::kInput, static_cast<uint32_t>(i)};
    }
    for (const size_t member : cluster.members) {
      for (const auto& input : graph.nodes()[member].inputs) {
        if (input) own_last_reads_[index(*input)] = member;
      }
    }
  }

  TileProgram run(std::vector<ir::ValueId>& outputs) {
    TileProgram program;
    for (const size_t member : cluster_.members) {
      const ir::Node& node = graph_.nodes()[member];
      TileProgram::Instruction instruction;
      instruction.tile = pointwise_tile({node, graph_});
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i]) instruction.operands[i] = places_.at(index(*node.inputs[i]));
      }
      const ir::ValueId result = node.outputs.front();
      if (leaves(result)) {
        instruction.result = {Place::In::kOutput, static_cast<uint32_t>(outputs.size())};
        outputs.push_back(result);
      } else {
        instruction.result = {Place::In::kRegister, take_register()};
        const int64_t item_bytes = size_bytes(graph_.type(result).dtype);
        program.register_item_bytes = std::max(program.register_item_bytes, item_bytes);
      }
      places_[index(result)] = instruction.result;
      // Only now: a tile function may not write what it reads in another dtype.
      for (const auto& input : node.inputs) release(input, member);
      program.instructions.push_back(instruction);
      program.label += (program.label.empty() ? "" : "+") + std::string(node.op->name);
      program.cost.flops += ops::node_cost(graph_, node).flops;
    }
    program.num_registers = num_registers_;
    const auto count_bytes = [&](ir::ValueId value) {
      program.cost.bytes += static_cast<double>(graph_.type(value).size_bytes());
    };
    std::ranges::for_each(cluster_.inputs, count_bytes);
    std::ranges::for_each(outputs, count_bytes);
    return program;
  }

 private:
  // True if a node outside reads the value, the graph returns it, or nobody reads it.
  bool leaves(ir::ValueId value) const {
    return last_reader_[index(value)] > static_cast<int>(cluster_.members.back()) ||
           !own_last_reads_.contains(index(value));
  }

  uint32_t take_register() {
    if (free_.empty()) return static_cast<uint32_t>(num_registers_++);
    const uint32_t taken = free_.back();
    free_.pop_back();
    return taken;
  }

  // Frees the register of an operand that no later member reads; once, if it is read twice.
  void release(const std::optional<ir::ValueId>& operand, size_t member) {
    if (!operand || own_last_reads_.at(index(*operand)) != member) return;
    const auto place = places_.find(index(*operand));
    if (place == places_.end()) return;
    if (place->second.in == Place::In::kRegister) free_.push_back(place->second.number);
    places_.erase(place);
  }

  const ir::Graph& graph_;
  const Cluster& cluster_;
  const std::vector<int>& last_reader_;
  std::unordered_map<uint32_t, Place> places_;           // by value: those that are still read
  std::unordered_map<uint32_t, size_t> own_last_reads_;  // by value: the member
  std::vector<uint32_t> free_;
  size_t num_registers_ = 0;
};

// By value: the last node that reads it; the number of nodes for a value that the graph returns.
std::vector<int> last_readers(const ir::Graph& graph) {
  std::vector<int> last(graph.num_values(), -1);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    for (const auto& input : graph.nodes()[i].inputs) {
      if (input) last[index(*input)] = static_cast<int>(i);
    }
  }
  for (const ir::ValueId output : graph.outputs()) {
    last[index(output)] = static_cast<int>(graph.nodes().size());
  }
  return last;
}

// Copies a graph node by node, with clusters in the place of their members.
class Rewriter {
 public:
  explicit Rewriter(const ir::Graph& graph) : graph_(graph), local_(graph.num_values()) {}

  FusedGraph run(const std::vector<Cluster>& clusters) {
    const std::vector<int> last_reader = last_readers(graph_);
    std::vector<const Cluster*> ends_at(graph_.nodes().size(), nullptr);
    std::vector<bool> is_member(graph_.nodes().size(), false);
    for (const Cluster& cluster : clusters) {
      if (cluster.members.size() < 2) continue;
      ends_at[cluster.members.back()] = &cluster;
      for (const size_t member : cluster.members) is_member[member] = true;
    }
    for (const ir::Input& input : graph_.inputs()) {
      local_[index(input.value)] = result_.graph.add_input(input.role, graph_.type(input.value));
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (ends_at[i] != nullptr) {
        add_fused(*ends_at[i], last_reader);
        result_.origins.push_back(i);
      } else if (!is_member[i]) {
        add_copy(graph_.nodes()[i]);
        result_.origins.push_back(i);
      }
    }
    std::vector<ir::ValueId> outputs;
    for (const ir::ValueId output : graph_.outputs()) outputs.push_back(local_[index(output)]);
    result_.graph.set_outputs(std::move(outputs));
    return std::move(result_);
  }

 private:
  void add_copy(const ir::Node& node) {
    ir::Node copy = node;
    for (auto& input : copy.inputs) {
      if (input) input = local_[index(*input)];
    }
    add(std::move(copy), node.outputs);
    result_.programs.emplace_back();
  }

  void add_fused(const Cluster& cluster, const std::vector<int>& last_reader) {
    std::vector<ir::ValueId> outputs;
    TileProgram program = Assembler(graph_, cluster, last_reader).run(outputs);
    ir::Node node;
    node.op = &fused_op();
    node.location = graph_.nodes()[cluster.members.back()].location;
    for (const ir::ValueId input : cluster.inputs) node.inputs.emplace_back(local_[index(input)]);
    add(std::move(node), outputs);
    result_.programs.emplace_back(std::move(program));
  }

  void add(ir::Node node, const std::vector<ir::ValueId>& outputs) {
    node.outputs.clear();
    std::vector<ir::ValueType> types;
    for (const ir::ValueId output : outputs) types.push_back(graph_.type(output));
    const std::vector<ir::ValueId> made = result_.graph.add_node(std::move(node), types);
    for (size_t i = 0; i < made.size(); ++i) local_[index(outputs[i])] = made[i];
  }

  const ir::Graph& graph_;
  std::vector<ir::ValueId> local_;
  FusedGraph result_;
};

}  // namespace

bool TileProgram::may_overwrite(size_t output, size_t input) const {
  bool is_written = false;
  for (const Instruction& instruction : instructions) {
    for (const Place& operand : instruction.operands) {
      // Reading and writing in one instruction is fine: a tile function may work in place.
      if (is_written && operand.in == Place::In::kInput && operand.number == input) return false;
    }
    const Place& result = instruction.result;
    is_written = is_written || (result.in == Place::In::kOutput && result.number == output);
  }
  return true;
}

FusedGraph fuse_elementwise(const ir::Graph& graph) {
  return Rewriter(graph).run(Clustering(graph).run());
}

const ir::Op& fused_op() {
  static const ir::Op op = [] {
    ir::Op made{};
    made.name = "fused";
    made.doc = "a program of element-wise operations";
    made.traits = ir::kPure | ir::kElementwise | ir::kInPlace;
    return made;
  }();
  return op;
}

}  // namespace lucid::cpu
