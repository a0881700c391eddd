// A stretch of the tape whose saved values are dropped and computed again when they are needed.
#pragma once

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/process.h"
#include "runtime/tensor/tensor.h"

namespace lucid::runtime {

class OpNode;

/// Notes the operations of a scope, and the cells that it writes. A second run starts from the
/// cells' values of then and leaves no trace but the saved values: running statistics and the like
/// are as if the function had run once.
class Checkpoint : public std::enable_shared_from_this<Checkpoint> {
 public:
  /// `outer` is the one in whose scope this one is made: its second run repeats the same writes.
  explicit Checkpoint(Checkpoint* outer = nullptr) : outer_(outer) {}
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  void note(std::shared_ptr<OpNode> node) { noted_.push_back(std::move(node)); }
  /// Called before a value is put into `cell`.
  void note_write(const std::shared_ptr<Cell>& cell);

  /// Drops the values that the noted operations saved. `run_again` runs the same function under
  /// the modes of a forward.
  void forget(std::function<void()> run_again);
  /// Brings the saved values back. Throws AutogradError if the second run recorded other
  /// operations than the first.
  void restore();

 private:
  using Written = std::unordered_map<const Cell*, std::pair<std::weak_ptr<Cell>, Variable>>;

  void take_from(const Checkpoint& second) const;

  Checkpoint* outer_;                                 ///< while the function runs
  std::vector<std::shared_ptr<OpNode>> noted_;        ///< while the function runs
  std::vector<std::weak_ptr<OpNode>> nodes_;          ///< the same, once forgotten
  Written written_;                                   ///< what the cells held before
  AutocastModes autocast_ = thread_state().autocast;  ///< of the forward
  std::function<void()> run_again_;
};

/// Makes this thread note what it does in a scope.
class CheckpointScope {
 public:
  explicit CheckpointScope(Checkpoint& checkpoint)
      : previous_(std::exchange(thread_state().checkpoint, &checkpoint)) {}
  ~CheckpointScope() { thread_state().checkpoint = previous_; }
  CheckpointScope(const CheckpointScope&) = delete;
  CheckpointScope& operator=(const CheckpointScope&) = delete;

 private:
  Checkpoint* previous_;
};

}  // namespace lucid::runtime
