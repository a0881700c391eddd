#include "runtime/autograd/checkpoint.h"

#include <utility>

#include "runtime/autograd/node.h"
#include "support/errors.h"

namespace lucid::runtime {
namespace {

using CellValue = std::pair<std::shared_ptr<Cell>, Variable>;

void put_back(const std::vector<CellValue>& values) {
  for (const auto& [cell, value] : values) {
    cell->variable = value;
    ++cell->version;  // views of it are taken again
  }
}

/// Puts values into cells when a scope ends, however it ends.
class PutBackLater {
 public:
  explicit PutBackLater(std::vector<CellValue> values) : values_(std::move(values)) {}
  ~PutBackLater() { put_back(values_); }
  PutBackLater(const PutBackLater&) = delete;
  PutBackLater& operator=(const PutBackLater&) = delete;

 private:
  std::vector<CellValue> values_;
};

/// Mixed precision as it was, for a scope.
class AutocastAsThen {
 public:
  explicit AutocastAsThen(const AutocastModes& modes)
      : previous_(std::exchange(thread_state().autocast, modes)) {}
  ~AutocastAsThen() { thread_state().autocast = previous_; }
  AutocastAsThen(const AutocastAsThen&) = delete;
  AutocastAsThen& operator=(const AutocastAsThen&) = delete;

 private:
  AutocastModes previous_;
};

}  // namespace

void Checkpoint::note_write(const std::shared_ptr<Cell>& cell) {
  if (outer_ != nullptr) outer_->note_write(cell);
  if (cell->view != nullptr) return;  // its base is noted, and it follows that
  auto& known = written_[cell.get()];
  if (known.first.lock() != cell) known = {cell, cell->variable};
}

void Checkpoint::forget(std::function<void()> run_again) {
  outer_ = nullptr;
  run_again_ = std::move(run_again);
  std::erase_if(written_, [](const auto& entry) { return entry.second.first.expired(); });
  for (const std::shared_ptr<OpNode>& node : noted_) node->forget(shared_from_this());
  nodes_.assign(noted_.begin(), noted_.end());
  noted_.clear();
}

void Checkpoint::restore() {
  const std::shared_ptr<Checkpoint> self = shared_from_this();  // the nodes let go of it
  Checkpoint second;
  std::vector<CellValue> then;
  std::vector<CellValue> now;
  for (const auto& [place, entry] : written_) {
    const std::shared_ptr<Cell> cell = entry.first.lock();
    if (cell == nullptr) continue;
    then.emplace_back(cell, entry.second);
    now.emplace_back(cell, cell->variable);
  }
  {
    const PutBackLater later(std::move(now));
    put_back(then);
    const GradMode recording(true);
    const AutocastAsThen precision(autocast_);
    const CheckpointScope scope(second);
    run_again_();
  }
  take_from(second);
}

void Checkpoint::take_from(const Checkpoint& second) const {
  const auto fail = [] {
    throw Error(ErrorKind::kAutograd,
                "checkpoint: the function ran other operations when it ran again for the backward; "
                "let it depend on its arguments only");
  };
  if (second.noted_.size() != nodes_.size()) fail();
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const std::shared_ptr<OpNode> node = nodes_[i].lock();
    if (node != nullptr && !node->take(*second.noted_[i])) fail();
  }
}

}  // namespace lucid::runtime
