#include "compile/pipeline.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "passes/passes.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::compile {
namespace {

constexpr size_t kMaxEntries = 256;

// Least recently used entries go first; a running executable is kept alive by its runner.
class Cache {
 public:
  CompiledRef find(const std::string& key) {
    const std::scoped_lock lock(mutex_);
    const auto it = by_key_.find(key);
    if (it == by_key_.end()) {
      ++misses_;
      return nullptr;
    }
    ++hits_;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->second;
  }

  void insert(const std::string& key, CompiledRef compiled) {
    const std::scoped_lock lock(mutex_);
    if (by_key_.contains(key)) return;
    entries_.emplace_front(key, std::move(compiled));
    by_key_.emplace(key, entries_.begin());
    if (entries_.size() <= kMaxEntries) return;
    by_key_.erase(entries_.back().first);
    entries_.pop_back();
  }

  CacheInfo info() {
    const std::scoped_lock lock(mutex_);
    return {static_cast<int64_t>(entries_.size()), hits_, misses_,
            static_cast<int64_t>(kMaxEntries)};
  }

  void clear() {
    const std::scoped_lock lock(mutex_);
    by_key_.clear();
    entries_.clear();
  }

 private:
  using Entries = std::list<std::pair<std::string, CompiledRef>>;
  std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_key_;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
};

Cache& cache() {
  static Cache instance;
  return instance;
}

// Writes LUCID_DUMP_IR/NN-pass.ir, if the variable is set.
class Dumper {
 public:
  Dumper() {
    const char* folder = std::getenv("LUCID_DUMP_IR");
    if (folder != nullptr && *folder != '\0') folder_ = folder;
  }

  void write(std::string_view pass, const ir::Graph& graph) {
    if (folder_.empty()) return;
    std::error_code failure;  // shows when the file is written
    std::filesystem::create_directories(folder_, failure);
    char number[8];
    std::snprintf(number, sizeof(number), "%02d-", next_++);
    const std::filesystem::path path = folder_ / (number + std::string(pass) + ".ir");
    std::ofstream file(path);
    file << ir::to_string(graph);
    if (file.good()) return;
    throw Error(ErrorKind::kUser, "LUCID_DUMP_IR: cannot write " + path.string());
  }

 private:
  std::filesystem::path folder_;
  int next_ = 0;
};

// The search counts with the planner's arena; a backend may lay out another one.
void check_arena(const Compiled& compiled, int64_t limit_bytes) {
  const int64_t arena = compiled.executable->memory().arena_peak;
  if (arena <= limit_bytes) return;
  throw Error(ErrorKind::kUnsupported,
              "make_step: this device does not keep to a memory_limit: its arena takes " +
                  std::to_string(arena) + " bytes of " + std::to_string(limit_bytes) +
                  "; leave the limit out");
}

// Values are computed again where that costs nothing, and under a limit to keep to it.
void compile_executable(Compiled& compiled, Device device, const Options& options, Dumper& dumper) {
  backends::Backend& backend = backends::backend_for(device);
  backends::CompileHints hints;
  hints.given = options.given;
  hints.disk = backends::DiskCache::from_environment();
  const auto arena_of = [&](const ir::Graph& graph, std::span<const int64_t> scratch_sizes) {
    return backend.arena_bytes(graph, scratch_sizes);
  };
  if (!options.memory_limit) {
    if (backend.knows_memory()) {
      const auto scratch_of = [&](const ir::Graph& graph) { return backend.scratch_sizes(graph); };
      compiled.graph = save_memory(std::move(compiled.graph), scratch_of, arena_of);
      ir::verify(compiled.graph, "save_memory");
      dumper.write("save_memory", compiled.graph);
    }
    compiled.executable = backend.compile(compiled.graph, hints);
    return;
  }
  const int64_t limit = *options.memory_limit;
  compiled.graph = fit_memory(compiled.graph, backend.scratch_sizes(compiled.graph), limit,
                              arena_of, compiled.recomputation.emplace());
  ir::verify(compiled.graph, "recompute");
  dumper.write("recompute", compiled.graph);
  hints.memory_limit = limit;
  compiled.executable = backend.compile(compiled.graph, hints);
  check_arena(compiled, limit);
}

}  // namespace

CompiledRef compile_graph(ir::Graph graph, Device device, const Options& options) {
  std::string key(name(device));
  if (options.memory_limit) key += "limit=" + std::to_string(*options.memory_limit) + ";";
  for (const planner::Given& pair : options.given) {
    key += "given=" + std::to_string(pair.input) + ">" + std::to_string(pair.output) + ";";
  }
  key += ir::structure_key(graph);
  if (CompiledRef known = cache().find(key)) return known;
  Dumper dumper;
  dumper.write("traced", graph);
  auto compiled = std::make_shared<Compiled>();
  compiled->graph = passes::run_pipeline(
      std::move(graph),
      [&](std::string_view pass, const ir::Graph& after) { dumper.write(pass, after); });
  compile_executable(*compiled, device, options, dumper);
  if (!compiled->executable->is_loaded()) {
    runtime::process_state().compilations.fetch_add(1, std::memory_order_relaxed);
  }
  cache().insert(key, compiled);
  return compiled;
}

CacheInfo cache_info() { return cache().info(); }

void clear_cache() { cache().clear(); }

}  // namespace lucid::compile
