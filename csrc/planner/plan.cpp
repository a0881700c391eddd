#include "planner/plan.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

#include "support/errors.h"

namespace lucid::planner {
namespace {

// One block of arena memory, needed while nodes [first, last] run.
struct Block {
  int64_t size_bytes = 0;
  int first = 0;
  int last = 0;
  int64_t offset_bytes = 0;
};

// More than any address space; sums of two such sizes do not overflow.
constexpr int64_t kMaxArenaBytes = int64_t{1} << 56;

[[noreturn]] void fail_too_large() {
  throw Error(ErrorKind::kOutOfMemory, "plan: the graph's values need 2^56 bytes or more");
}

int64_t aligned(int64_t bytes) {
  if (bytes > kMaxArenaBytes) fail_too_large();
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Offsets by "one after the other, lowest gap that is free during the block's life"
// (Pisarchyk and Lee 2020, arXiv:2001.03288). Returns the arena's size.
int64_t place_in_order(std::vector<Block>& blocks, const std::vector<size_t>& order) {
  std::vector<Block> placed;  // by offset; copies, so that the scan below reads memory in order
  int64_t arena_bytes = 0;
  for (const size_t i : order) {
    Block& block = blocks[i];
    if (block.size_bytes == 0) continue;
    int64_t offset = 0;
    for (const Block& other : placed) {
      if (other.last < block.first || block.last < other.first) continue;
      if (offset + block.size_bytes <= other.offset_bytes) break;
      offset = std::max(offset, other.offset_bytes + other.size_bytes);
    }
    if (offset > kMaxArenaBytes - block.size_bytes) fail_too_large();
    block.offset_bytes = offset;
    arena_bytes = std::max(arena_bytes, offset + block.size_bytes);
    const auto later = std::ranges::upper_bound(placed, offset, {}, &Block::offset_bytes);
    placed.insert(later, block);
  }
  return arena_bytes;
}

// Bytes that live at one time, at the worst: no layout takes less.
int64_t live_peak(const std::vector<Block>& blocks, size_t num_nodes) {
  std::vector<int64_t> changes(num_nodes + 1, 0);
  for (const Block& block : blocks) {
    changes[static_cast<size_t>(block.first)] += block.size_bytes;
    changes[static_cast<size_t>(block.last) + 1] -= block.size_bytes;
  }
  int64_t live = 0;
  int64_t peak = 0;
  for (const int64_t change : changes) peak = std::max(peak, live += change);
  return peak;
}

// Largest blocks first; where that leaves gaps, longest lives first as well, and the smaller
// arena of both. Returns the arena's size.
int64_t place_blocks(std::vector<Block>& blocks, size_t num_nodes) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t lhs, size_t rhs) {
    return blocks[lhs].size_bytes > blocks[rhs].size_bytes;
  });
  const int64_t arena_bytes = place_in_order(blocks, order);
  if (arena_bytes == live_peak(blocks, num_nodes)) return arena_bytes;
  std::ranges::stable_sort(order, [&](size_t lhs, size_t rhs) {
    return blocks[lhs].last - blocks[lhs].first > blocks[rhs].last - blocks[rhs].first;
  });
  std::vector<Block> others = blocks;
  const int64_t other_bytes = place_in_order(others, order);
  if (other_bytes >= arena_bytes) return arena_bytes;
  blocks = std::move(others);
  return other_bytes;
}

class Planner {
 public:
  Planner(const ir::Graph& graph, std::span<const int64_t> scratch_sizes,
          const MayOverwrite& may_overwrite)
      : graph_(graph),
        scratch_sizes_(scratch_sizes),
        may_overwrite_(may_overwrite),
        roots_(graph.num_values()),
        last_use_(graph.num_values(), -1),
        kinds_(graph.num_values()),
        blocks_of_(graph.num_values()) {}

  Plan run(std::span<const Given> given) {
    find_roots();
    find_last_uses();
    claim_outputs();
    make_blocks();
    find_donations(given);
    result_.arena_bytes = place_blocks(blocks_, graph_.nodes().size());
    write_places();
    return std::move(result_);
  }

 private:
  uint32_t root(ir::ValueId id) const { return roots_[index(id)]; }

  // A value with the bytes of another (reshape) lives where that one does.
  void find_roots() {
    std::iota(roots_.begin(), roots_.end(), 0u);
    for (const ir::Node& node : graph_.nodes()) {
      if (!node.op->is(ir::kAlias)) continue;
      roots_[index(node.outputs.front())] = root(node.in(0));
    }
  }

  void find_last_uses() {
    const auto& nodes = graph_.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const auto& input : nodes[i].inputs) {
        if (input) last_use_[root(*input)] = static_cast<int>(i);
      }
    }
  }

  // Inputs stay where they are. The first graph output of a root is written in place; a second
  // one, or one that is an input, is copied at the end.
  void claim_outputs() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      kinds_[index(graph_.inputs()[i].value)] =
          Place{PlaceKind::kInput, static_cast<uint32_t>(i), 0};
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const ir::ValueId output = graph_.outputs()[i];
      std::optional<Place>& kind = kinds_[root(output)];
      if (kind) {
        result_.copies.push_back({output, static_cast<uint32_t>(i)});
        continue;
      }
      kind = Place{PlaceKind::kOutput, static_cast<uint32_t>(i), 0};
    }
  }

  bool allows(size_t place, size_t output, size_t input) const {
    if (may_overwrite_) return may_overwrite_(place, output, input);
    return allows_overwrite(*graph_.nodes()[place].op, output, input);
  }

  // True if that output of a node may take the memory of that operand, which dies there.
  bool may_take(size_t place, size_t output, size_t input) const {
    const ir::Node& node = graph_.nodes()[place];
    if (!node.has(input) || !allows(place, output, input)) return false;
    const ir::ValueType& made = graph_.type(node.outputs[output]);
    const ir::ValueType& taken = graph_.type(node.in(input));
    if (taken.dtype != made.dtype || taken.size_bytes() != made.size_bytes()) return false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      // A second read of the memory, other than element by element, would see overwritten ones.
      const bool reads_again =
          i != input && node.inputs[i] && root(*node.inputs[i]) == root(node.in(input));
      const bool same_elements = node.op->is(ir::kElementwise) && reads_again &&
                                 graph_.type(*node.inputs[i]) == taken && allows(place, output, i);
      if (reads_again && !same_elements) return false;
    }
    return true;
  }

  // The block of an operand that dies at a node, if the output may overwrite it.
  std::optional<size_t> reusable_block(size_t place, size_t output) const {
    const ir::Node& node = graph_.nodes()[place];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!may_take(place, output, i)) continue;
      const uint32_t operand = root(node.in(i));
      const bool dies = !kinds_[operand] && last_use_[operand] == static_cast<int>(place);
      // An earlier output of this node that took the block has moved its end.
      const bool is_free = dies && blocks_[*blocks_of_[operand]].last == static_cast<int>(place) &&
                           !taken_here_.contains(*blocks_of_[operand]);
      if (is_free) return blocks_of_[operand];
    }
    return std::nullopt;
  }

  void make_blocks() {
    const auto& nodes = graph_.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      const int place = static_cast<int>(i);
      taken_here_.clear();
      for (size_t j = 0; j < nodes[i].outputs.size(); ++j) {
        const ir::ValueId output = nodes[i].outputs[j];
        const uint32_t value = index(output);
        if (root(output) != value || kinds_[value]) continue;
        const int last = std::max(last_use_[value], place);
        const auto reused = reusable_block(i, j);
        if (reused) {
          taken_here_.insert(*reused);
          blocks_[*reused].last = last;
          blocks_of_[value] = reused;
          continue;
        }
        blocks_of_[value] = blocks_.size();
        blocks_.push_back({aligned(graph_.type(output).size_bytes()), place, last, 0});
      }
      scratch_blocks_.push_back(blocks_.size());
      blocks_.push_back({aligned(scratch_sizes_[i]), place, place, 0});
    }
  }

  // Takes the pairs whose output some node writes, and whose input is dead by then.
  void find_donations(std::span<const Given> given) {
    if (given.empty()) return;
    std::vector<bool> is_kept(graph_.num_values(), false);  // by root: read at the end
    for (const Copy& copy : result_.copies) is_kept[root(copy.from)] = true;
    std::vector<bool> is_written(graph_.outputs().size(), false);
    for (const Given& pair : given) {
      const ir::ValueId input = graph_.inputs()[pair.input].value;
      const ir::ValueId output = graph_.outputs()[pair.output];
      const std::optional<Place>& kind = kinds_[root(output)];
      const int producer = graph_.producer(ir::ValueId{root(output)});
      const bool is_own = kind && kind->kind == PlaceKind::kOutput && kind->slot == pair.output;
      if (producer < 0 || !is_own || is_written[pair.output] || is_kept[index(input)]) continue;
      const auto place = static_cast<size_t>(producer);
      if (!may_be_given(input, output, place)) continue;
      is_written[pair.output] = true;
      is_kept[index(input)] = true;
      result_.donations.push_back({pair.output, pair.input, place});
    }
  }

  // True if nobody reads the input once that node writes the output.
  bool may_be_given(ir::ValueId input, ir::ValueId output, size_t place) const {
    if (graph_.type(input).size_bytes() != graph_.type(output).size_bytes()) return false;
    const int last = last_use_[index(input)];
    if (last != static_cast<int>(place)) return last < static_cast<int>(place);
    const ir::Node& node = graph_.nodes()[place];
    const auto made = std::ranges::find(node.outputs, ir::ValueId{root(output)});
    const auto slot = static_cast<size_t>(made - node.outputs.begin());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const bool reads = node.inputs[i] && root(*node.inputs[i]) == index(input);
      if (reads && may_take(place, slot, i)) return true;
    }
    return false;
  }

  void write_places() {
    for (size_t value = 0; value < graph_.num_values(); ++value) {
      const uint32_t source = roots_[value];
      if (kinds_[source]) {
        result_.places.push_back(*kinds_[source]);
        continue;
      }
      const int64_t offset = blocks_of_[source] ? blocks_[*blocks_of_[source]].offset_bytes : 0;
      result_.places.push_back({PlaceKind::kArena, 0, offset});
    }
    for (const size_t block : scratch_blocks_) {
      result_.scratch_offsets.push_back(blocks_[block].offset_bytes);
    }
  }

  const ir::Graph& graph_;
  std::span<const int64_t> scratch_sizes_;
  const MayOverwrite& may_overwrite_;
  std::vector<uint32_t> roots_;
  std::vector<int> last_use_;                     // by root: last node that reads it, or -1
  std::vector<std::optional<Place>> kinds_;       // by root: inputs and outputs
  std::vector<std::optional<size_t>> blocks_of_;  // by root: arena values
  std::vector<size_t> scratch_blocks_;
  std::vector<Block> blocks_;
  std::set<size_t> taken_here_;  // blocks that outputs of the node at hand took
  Plan result_;
};

}  // namespace

bool allows_overwrite(const ir::Op& op, size_t output, size_t input) {
  return op.is(ir::kInPlace) && output == 0 &&
         (input == op.in_place_input || op.is(ir::kElementwise));
}

Plan plan(const ir::Graph& graph, std::span<const int64_t> scratch_sizes,
          const MayOverwrite& may_overwrite, std::span<const Given> given) {
  return Planner(graph, scratch_sizes, may_overwrite).run(given);
}

}  // namespace lucid::planner
