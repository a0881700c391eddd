#include "backends/notices.h"

#include <atomic>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace lucid::backends {
namespace {

struct Notices {
  std::mutex mutex;
  std::unordered_set<std::string> known;
  std::vector<std::string> waiting;
  std::atomic<bool> any = false;  // lets a reader pass without the lock
};

Notices& notices() {
  static Notices instance;
  return instance;
}

}  // namespace

void notify(const std::string& text) {
  Notices& all = notices();
  const std::scoped_lock lock(all.mutex);
  if (!all.known.insert(text).second) return;
  all.waiting.push_back(text);
  all.any = true;
}

std::vector<std::string> take_notices() {
  Notices& all = notices();
  if (!all.any.load(std::memory_order_relaxed)) return {};
  const std::scoped_lock lock(all.mutex);
  all.any = false;
  return std::exchange(all.waiting, {});
}

}  // namespace lucid::backends
