// Registers taken apart into even and odd elements, and put together again. Only the engine's
// *.isa.cpp files include this header: every function here is compiled per instruction set.
#pragma once

#include <utility>

#include "backends/cpu/engine/registers.h"

namespace lucid::cpu::LUCID_ISA {

template <class T>
struct Pair {
  typename Registers<T>::Reg first;
  typename Registers<T>::Reg second;
};

template <class T>
using AllLanes = std::make_integer_sequence<int, Registers<T>::kCount>;

template <class T, int... kLane>
inline Pair<T> split_lanes(const Pair<T>& x, std::integer_sequence<int, kLane...>) {
  return {__builtin_shufflevector(x.first, x.second, (2 * kLane)...),
          __builtin_shufflevector(x.first, x.second, (2 * kLane + 1)...)};
}

template <class T, int... kLane>
inline Pair<T> weave_lanes(const Pair<T>& x, std::integer_sequence<int, kLane...>) {
  constexpr int kCount = Registers<T>::kCount;
  return {
      __builtin_shufflevector(x.first, x.second, (kLane % 2 * kCount + kLane / 2)...),
      __builtin_shufflevector(x.first, x.second, (kLane % 2 * kCount + (kCount + kLane) / 2)...)};
}

/// Elements 0, 2, ... and 1, 3, ... of two neighbouring registers.
template <class T>
inline Pair<T> split(const Pair<T>& neighbours) {
  return split_lanes(neighbours, AllLanes<T>());
}

/// The neighbours that even and odd elements make: the inverse of split.
template <class T>
inline Pair<T> weave(const Pair<T>& even_odd) {
  return weave_lanes(even_odd, AllLanes<T>());
}

}  // namespace lucid::cpu::LUCID_ISA
