// Gate arithmetic of the recurrent layers: one step of a block of sequences and units.
#pragma once

#include <cstdint>

#include "backends/cpu/simd/isa.h"

namespace lucid::cpu {

/// A block of one step. Pointers are to its first element. States are (N, units) arrays, gates and
/// projected inputs have their blocks `units` apart.
struct GateBlock {
  int64_t rows;   ///< sequences
  int64_t count;  ///< units of this block
  int64_t units;  ///< units of the layer
};

/// What comes into a step's gradient from outside; null where nothing does.
template <class T>
struct StepGrads {
  const T* output;
  const T* gates;
  const T* cells;
};

template <class T>
struct RecurrentLoops {
  /// gates (4 blocks): sums before, i f g o after.
  void (*lstm)(const GateBlock& block, const T* c_before, T* gates, T* c, T* h) = nullptr;
  /// dh and dc: gradients of the state after the step; dc becomes that of the state before it.
  void (*lstm_grad)(const GateBlock& block, const T* gates, const T* c, const T* c_before,
                    const StepGrads<T>& grads, T* dh, T* dc, T* d_sums) = nullptr;
  /// gates (4 blocks): sums of r and z, nothing, and W_hn h + b_hn before; r z n and it after.
  void (*gru)(const GateBlock& block, const T* x, const T* h_before, T* gates, T* h) = nullptr;
  /// dh: gradient of the state after the step; becomes the part that bypasses the product.
  void (*gru_grad)(const GateBlock& block, const T* gates, const T* h_before,
                   const StepGrads<T>& grads, T* dh, T* d_x, T* d_projected) = nullptr;
  /// h: sums before, states after.
  void (*rnn)(const GateBlock& block, bool relu, T* h) = nullptr;
  void (*rnn_grad)(const GateBlock& block, bool relu, const T* h, const StepGrads<T>& grads, T* dh,
                   T* d_x) = nullptr;
};

}  // namespace lucid::cpu

LUCID_ISA_DECLARE(void get_loops(RecurrentLoops<float>& loops);
                  void get_loops(RecurrentLoops<double>& loops);)
