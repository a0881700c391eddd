#include "runtime/dispatch/eager_cache.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

#include "runtime/process.h"

namespace lucid::runtime {
namespace {

constexpr size_t kMaxEntries = 4096;
constexpr int64_t kLongBytes = 64 * 1024;

void append_type(std::string& key, const ir::ValueType& type) {
  key += static_cast<char>(type.dtype);
  key += static_cast<char>(type.shape.rank());
  const auto sizes = type.shape.sizes();
  key.append(reinterpret_cast<const char*>(sizes.data()), sizes.size_bytes());
}

bool has_run_time_attrs(const ir::Op& op) {
  return std::ranges::any_of(op.attrs, [](const ir::AttrSpec& spec) { return spec.run_time; });
}

// Least recently used entries go first.
class Cache {
 public:
  std::shared_ptr<const EagerEntry> find(const std::string& key) {
    const std::scoped_lock lock(mutex_);
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) return nullptr;
    if (it->second != entries_.begin()) {
      entries_.splice(entries_.begin(), entries_, it->second);
    }
    return it->second->second;
  }

  void insert(const std::string& key, std::shared_ptr<const EagerEntry> entry) {
    const std::scoped_lock lock(mutex_);
    if (by_key_.contains(key)) return;
    entries_.emplace_front(key, std::move(entry));
    by_key_.emplace(key, entries_.begin());
    if (entries_.size() <= kMaxEntries) return;
    by_key_.erase(entries_.back().first);
    entries_.pop_back();
  }

  size_t size() {
    const std::scoped_lock lock(mutex_);
    return entries_.size();
  }

  void clear() {
    const std::scoped_lock lock(mutex_);
    by_key_.clear();
    entries_.clear();
  }

 private:
  using Entries = std::list<std::pair<std::string, std::shared_ptr<const EagerEntry>>>;
  std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_key_;
};

Cache& cache() {
  static Cache instance;
  return instance;
}

std::shared_ptr<const EagerEntry> compile(const ir::Op& op,
                                          std::span<const std::optional<ir::ValueType>> inputs,
                                          const ir::Attrs& attrs, ir::ValueTypes outputs,
                                          Device device) {
  ir::Graph graph;
  ir::Node node{.op = &op,
                .inputs = {},
                .outputs = {},
                .attrs = attrs,
                .location = nullptr,
                .stop_gradient = false};
  for (const auto& type : inputs) {
    node.inputs.push_back(type ? std::optional(graph.add_input(ir::Role::kArgument, *type))
                               : std::nullopt);
  }
  graph.set_outputs(graph.add_node(std::move(node), outputs));
  auto entry = std::make_shared<EagerEntry>();
  entry->executable = backends::backend_for(device).compile(graph);
  entry->outputs = std::move(outputs);
  const backends::MemoryReport memory = entry->executable->memory();
  entry->is_long = memory.inputs + memory.outputs + memory.arena_peak > kLongBytes;
  return entry;
}

}  // namespace

std::shared_ptr<const EagerEntry> eager_entry(const ir::Op& op,
                                              std::span<const std::optional<ir::ValueType>> inputs,
                                              const ir::Attrs& attrs, Device device) {
  thread_local std::string key;
  const ir::Op* const identity = &op;
  key.assign(reinterpret_cast<const char*>(&identity), sizeof(identity));
  key += static_cast<char>(device);
  for (const auto& type : inputs) {
    if (type) {
      append_type(key, *type);
    } else {
      key += '\xff';
    }
  }
  for (size_t i = 0; i < attrs.size(); ++i) {
    if (i < op.attrs.size() && !op.attrs[i].run_time) ir::append_key(key, attrs[i]);
  }
  ir::ValueTypes outputs;
  if (has_run_time_attrs(op)) {
    outputs = ir::infer(op, inputs, attrs, nullptr);
    for (const ir::ValueType& type : outputs) append_type(key, type);
  }
  if (auto entry = cache().find(key)) return entry;
  if (outputs.empty()) outputs = ir::infer(op, inputs, attrs, nullptr);
  const std::string stored = key;
  auto entry = compile(op, inputs, attrs, std::move(outputs), device);
  cache().insert(stored, entry);
  return entry;
}

size_t eager_cache_size() { return cache().size(); }

void clear_eager_cache() { cache().clear(); }

}  // namespace lucid::runtime
