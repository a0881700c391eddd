// Each loop over units is free of branches, so that it is vectorised with the functions inlined.
#include "backends/cpu/kernels/recurrent_loops.h"

#include "backends/cpu/simd/exponential.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

template <class T>
LUCID_INLINE T sigmoid_slope(T y) {
  return y * (T{1} - y);
}

template <class T>
LUCID_INLINE T tanh_slope(T y) {
  return T{1} - y * y;
}

/// sums += terms, unless there are none.
template <class T>
void add_terms(const T* terms, int64_t count, T* sums) {
  if (terms == nullptr) return;
  LUCID_LOOP
  for (int64_t j = 0; j < count; ++j) sums[j] += terms[j];
}

/// Row `row` of an array that may be absent.
template <class T>
const T* row_of(const T* data, int64_t row, int64_t stride) {
  return data == nullptr ? nullptr : data + row * stride;
}

template <class T>
void lstm(const GateBlock& block, const T* c_before, T* gates, T* c, T* h) {
  const int64_t units = block.units;
  for (int64_t row = 0; row < block.rows; ++row) {
    T* i = gates + row * 4 * units;
    T* f = i + units;
    T* g = f + units;
    T* o = g + units;
    const T* before = c_before + row * units;
    T* cell = c + row * units;
    T* state = h + row * units;
    LUCID_LOOP
    for (int64_t j = 0; j < block.count; ++j) {
      const T in = sigmoid(i[j]);
      const T forget = sigmoid(f[j]);
      const T candidate = tanh(g[j]);
      const T out = sigmoid(o[j]);
      const T value = fma(forget, before[j], in * candidate);
      i[j] = in;
      f[j] = forget;
      g[j] = candidate;
      o[j] = out;
      cell[j] = value;
      state[j] = out * tanh(value);
    }
  }
}

// d_sums may be the gates themselves: each is read before anything is written.
template <bool kHasGates, class T>
void lstm_grad_row(int64_t count, int64_t units, const T* gates, const T* c, const T* c_before,
                   const T* d_gates, const T* dh, T* dc, T* d_sums) {
  LUCID_LOOP
  for (int64_t j = 0; j < count; ++j) {
    const T i = gates[j];
    const T f = gates[units + j];
    const T g = gates[2 * units + j];
    const T o = gates[3 * units + j];
    const T squashed = tanh(c[j]);
    const T d_cell = fma(dh[j] * o, tanh_slope(squashed), dc[j]);
    T d_in = d_cell * g;
    T d_forget = d_cell * c_before[j];
    T d_candidate = d_cell * i;
    T d_out = dh[j] * squashed;
    if constexpr (kHasGates) {
      d_in += d_gates[j];
      d_forget += d_gates[units + j];
      d_candidate += d_gates[2 * units + j];
      d_out += d_gates[3 * units + j];
    }
    d_sums[j] = d_in * sigmoid_slope(i);
    d_sums[units + j] = d_forget * sigmoid_slope(f);
    d_sums[2 * units + j] = d_candidate * tanh_slope(g);
    d_sums[3 * units + j] = d_out * sigmoid_slope(o);
    dc[j] = d_cell * f;
  }
}

template <class T>
void lstm_grad(const GateBlock& block, const T* gates, const T* c, const T* c_before,
               const StepGrads<T>& grads, T* dh, T* dc, T* d_sums) {
  const int64_t units = block.units;
  const auto run_row = grads.gates == nullptr ? lstm_grad_row<false, T> : lstm_grad_row<true, T>;
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t state = row * units;
    const int64_t wide = row * 4 * units;
    add_terms(row_of(grads.output, row, units), block.count, dh + state);
    add_terms(row_of(grads.cells, row, units), block.count, dc + state);
    run_row(block.count, units, gates + wide, c + state, c_before + state,
            row_of(grads.gates, row, 4 * units), dh + state, dc + state, d_sums + wide);
  }
}

template <class T>
void gru(const GateBlock& block, const T* x, const T* h_before, T* gates, T* h) {
  const int64_t units = block.units;
  for (int64_t row = 0; row < block.rows; ++row) {
    T* r = gates + row * 4 * units;
    T* z = r + units;
    T* n = z + units;
    const T* projected = n + units;
    const T* x_n = x + row * 3 * units + 2 * units;
    const T* before = h_before + row * units;
    T* state = h + row * units;
    LUCID_LOOP
    for (int64_t j = 0; j < block.count; ++j) {
      const T reset = sigmoid(r[j]);
      const T update = sigmoid(z[j]);
      const T candidate = tanh(fma(reset, projected[j], x_n[j]));
      r[j] = reset;
      z[j] = update;
      n[j] = candidate;
      state[j] = fma(update, before[j] - candidate, candidate);
    }
  }
}

template <bool kHasGates, class T>
void gru_grad_row(int64_t count, int64_t units, const T* gates, const T* h_before, const T* d_gates,
                  T* dh, T* d_x, T* d_projected) {
  const T* r = gates;
  const T* z = gates + units;
  const T* n = gates + 2 * units;
  const T* projected = gates + 3 * units;
  LUCID_LOOP
  for (int64_t j = 0; j < count; ++j) {
    const T kept = dh[j] * z[j];
    T d_new = dh[j] - kept;
    T d_update = dh[j] * (h_before[j] - n[j]);
    if constexpr (kHasGates) {
      d_new += d_gates[2 * units + j];
      d_update += d_gates[units + j];
    }
    const T sum_new = d_new * tanh_slope(n[j]);
    T d_reset = sum_new * projected[j];
    T d_product = sum_new * r[j];
    if constexpr (kHasGates) {
      d_reset += d_gates[j];
      d_product += d_gates[3 * units + j];
    }
    const T sum_reset = d_reset * sigmoid_slope(r[j]);
    const T sum_update = d_update * sigmoid_slope(z[j]);
    d_x[j] = sum_reset;
    d_x[units + j] = sum_update;
    d_x[2 * units + j] = sum_new;
    d_projected[j] = sum_reset;
    d_projected[units + j] = sum_update;
    d_projected[2 * units + j] = d_product;
    dh[j] = kept;
  }
}

template <class T>
void gru_grad(const GateBlock& block, const T* gates, const T* h_before, const StepGrads<T>& grads,
              T* dh, T* d_x, T* d_projected) {
  const int64_t units = block.units;
  const auto run_row = grads.gates == nullptr ? gru_grad_row<false, T> : gru_grad_row<true, T>;
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t state = row * units;
    const int64_t wide = row * 3 * units;
    add_terms(row_of(grads.output, row, units), block.count, dh + state);
    run_row(block.count, units, gates + row * 4 * units, h_before + state,
            row_of(grads.gates, row, 4 * units), dh + state, d_x + wide, d_projected + wide);
  }
}

template <class T>
void rnn(const GateBlock& block, bool relu, T* h) {
  for (int64_t row = 0; row < block.rows; ++row) {
    T* state = h + row * block.units;
    if (relu) {
      LUCID_LOOP
      for (int64_t j = 0; j < block.count; ++j) state[j] = at_least(state[j], T{0});
    } else {
      LUCID_LOOP
      for (int64_t j = 0; j < block.count; ++j) state[j] = tanh(state[j]);
    }
  }
}

template <class T>
void rnn_grad(const GateBlock& block, bool relu, const T* h, const StepGrads<T>& grads, T* dh,
              T* d_x) {
  for (int64_t row = 0; row < block.rows; ++row) {
    const int64_t start = row * block.units;
    const T* state = h + start;
    const T* grad = dh + start;
    T* d_sum = d_x + start;
    add_terms(row_of(grads.output, row, block.units), block.count, dh + start);
    if (relu) {
      LUCID_LOOP
      for (int64_t j = 0; j < block.count; ++j) d_sum[j] = state[j] > 0 ? grad[j] : T{0};
    } else {
      LUCID_LOOP
      for (int64_t j = 0; j < block.count; ++j) d_sum[j] = grad[j] * tanh_slope(state[j]);
    }
  }
}

template <class T>
constexpr RecurrentLoops<T> kLoops = {.lstm = lstm<T>,
                                      .lstm_grad = lstm_grad<T>,
                                      .gru = gru<T>,
                                      .gru_grad = gru_grad<T>,
                                      .rnn = rnn<T>,
                                      .rnn_grad = rnn_grad<T>};

}  // namespace

void get_loops(RecurrentLoops<float>& loops) { loops = kLoops<float>; }
void get_loops(RecurrentLoops<double>& loops) { loops = kLoops<double>; }

}  // namespace lucid::cpu::LUCID_ISA
