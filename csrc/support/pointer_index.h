// PointerIndex: numbers pointers in the order of their first appearance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lucid {

/// Open-addressing map from pointers to 0, 1, 2, ...; no allocation per pointer.
class PointerIndex {
 public:
  static constexpr uint32_t kAbsent = ~0u;

  void reserve(size_t count) {
    size_t capacity = 16;
    while (capacity < 2 * count) capacity *= 2;
    if (capacity > slots_.size()) rehash(capacity);
  }

  /// The number of a pointer, and whether it is new.
  std::pair<uint32_t, bool> insert(const void* pointer) {
    if (2 * (count_ + 1) > slots_.size()) reserve(count_ + 1);
    Slot& slot = slots_[place(pointer)];
    if (slot.pointer != nullptr) return {slot.number, false};
    slot = {pointer, count_++};
    return {slot.number, true};
  }

  /// The number of a pointer, or kAbsent.
  uint32_t find(const void* pointer) const {
    if (slots_.empty()) return kAbsent;
    const Slot& slot = slots_[place(pointer)];
    return slot.pointer == nullptr ? kAbsent : slot.number;
  }

 private:
  struct Slot {
    const void* pointer = nullptr;
    uint32_t number = 0;
  };

  // The slot that holds the pointer, or the empty one where it belongs.
  size_t place(const void* pointer) const {
    const auto bits = reinterpret_cast<uintptr_t>(pointer);
    size_t at = (bits >> 4) * 0x9e3779b97f4a7c15u >> 20 & (slots_.size() - 1);
    while (slots_[at].pointer != nullptr && slots_[at].pointer != pointer) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }

  void rehash(size_t capacity) {
    std::vector<Slot> old(capacity);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.pointer != nullptr) slots_[place(slot.pointer)] = slot;
    }
  }

  std::vector<Slot> slots_;
  uint32_t count_ = 0;
};

}  // namespace lucid
