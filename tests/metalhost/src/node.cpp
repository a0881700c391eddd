#include "node.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "process.h"
#include "refuse.h"

namespace metalhost {
namespace {

using Results = std::unordered_map<const Node*, std::vector<Array>>;

// Bytes of temporaries that stay reserved until the end of a run.
class Reservation {
 public:
  Reservation() = default;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() { release_bytes(bytes_); }

  void add(uint64_t bytes) {
    if (!reserve_bytes(bytes)) throw OutOfDeviceMemory();
    bytes_ += bytes;
  }
  void remove(uint64_t bytes) {
    release_bytes(bytes);
    bytes_ -= bytes;
  }

 private:
  uint64_t bytes_ = 0;
};

uint64_t bytes_of(const std::vector<Array>& arrays) {
  uint64_t bytes = 0;
  for (const Array& array : arrays) bytes += array.bytes().size();
  return bytes;
}

void check_results(const Node& node, const std::vector<Array>& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    const Type& declared = node.op.outputs[i];
    const Type& found = results[i].type();
    if (found.shape != declared.shape || found.data_type != declared.data_type) {
      fail_assertion("metalhost",
                     node.op.name + " made " + text_of(found) + ", declared " + text_of(declared));
    }
  }
}

}  // namespace

const Type& Value::type() const { return node->op.outputs[index]; }

Op single(std::string name, Type output, std::function<Array(Inputs)> evaluate) {
  return {.name = std::move(name),
          .outputs = {std::move(output)},
          .evaluate = [evaluate = std::move(evaluate)](Inputs in) {
            return std::vector<Array>{evaluate(in)};
          }};
}

Schedule::Schedule(const std::vector<Value>& targets, const std::vector<Value>& feeds)
    : targets_(targets), feeds_(feeds) {
  std::unordered_set<const Node*> seen;
  for (const Value& feed : feeds_) seen.insert(feed.node.get());
  std::vector<std::shared_ptr<Node>> pending;
  for (const Value& target : targets_) pending.push_back(target.node);
  while (!pending.empty()) {
    std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (!seen.insert(node.get()).second) continue;
    if (!node->op.evaluate) {
      fail_assertion("MPSGraph.mm", "Error: the placeholder of type " +
                                        text_of(node->op.outputs[0]) + " is not in the feeds");
    }
    for (const Value& input : node->inputs) pending.push_back(input.node);
    nodes_.push_back(std::move(node));
  }
  std::ranges::sort(nodes_, {}, [](const auto& node) { return node->order; });
}

std::vector<Array> Schedule::run(const std::vector<Array>& feeds) const {
  std::unordered_map<const Node*, int64_t> uses;
  for (const auto& node : nodes_) {
    for (const Value& input : node->inputs) ++uses[input.node.get()];
  }
  Results results;
  for (size_t i = 0; i < feeds_.size(); ++i) {
    results[feeds_[i].node.get()] = {feeds[i]};
    ++uses[feeds_[i].node.get()];  // the caller's memory is not ours to count
  }
  for (const Value& target : targets_) ++uses[target.node.get()];
  Reservation reservation;
  for (const auto& node : nodes_) {
    std::vector<Array> inputs;
    for (const Value& input : node->inputs) {
      inputs.push_back(results.at(input.node.get())[input.index]);
    }
    std::vector<Array>& made = results[node.get()];
    made = node->op.evaluate(inputs);
    check_results(*node, made);
    reservation.add(bytes_of(made));
    for (const Value& input : node->inputs) {
      if (--uses[input.node.get()] > 0) continue;
      const auto spent = results.find(input.node.get());
      reservation.remove(bytes_of(spent->second));
      results.erase(spent);
    }
  }
  std::vector<Array> outputs;
  for (const Value& target : targets_) {
    outputs.push_back(results.at(target.node.get())[target.index]);
  }
  return outputs;
}

}  // namespace metalhost
