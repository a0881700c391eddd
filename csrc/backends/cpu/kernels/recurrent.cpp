// Kernels of the recurrent layers and their gradients: all time steps of a direction in one run.
//
// Every element of a product is one chain of fused multiply-adds that starts at the projected input
// (or at the carried gradient), so no division of the work among threads changes its bits.
#include <algorithm>

#include "backends/cpu/engine/block_product.h"
#include "backends/cpu/engine/sizes.h"
#include "backends/cpu/engine/speed.h"
#include "backends/cpu/kernels/families.h"
#include "backends/cpu/kernels/half_operands.h"
#include "backends/cpu/kernels/recurrent_loops.h"
#include "backends/cpu/threads/team.h"

namespace lucid::cpu {
namespace {

constexpr double kGateNs = 1.0;       // one gate of one unit
constexpr double kParallelNs = 20e3;  // work of a parallel region that pays
constexpr int64_t kMinRows = 8;       // of a part: fewer leave the product's registers idle
/// Columns of a panel of the weight: two registers of the widest vectors.
template <class T>
constexpr int64_t kPanel = 128 / static_cast<int64_t>(sizeof(T));

/// Sequences and units that one task computes.
struct Part {
  int64_t row;
  int64_t rows;
  int64_t unit;
  int64_t units;
};

/// The recurrent weight as the right factor of a step's products, in panels of columns if several
/// steps use them.
template <class T>
struct StepWeight {
  const T* data;
  bool packed;
};

/// What the layers share: sizes, the way through the steps, and the products with the weight.
template <class T>
class RecurrentKernel : public Kernel {
 public:
  /// `sequence` is (T, N, ...), `weight` (blocks * H, H).
  RecurrentKernel(const NodeView& view, const Shape& sequence, const Shape& weight)
      : steps_(sequence[0]),
        batch_(sequence[1]),
        units_(weight[1]),
        blocks_(units_ == 0 ? 0 : weight[0] / weight[1]),
        reverse_(view.node.flag("reverse")),
        num_inputs_(view.num_inputs()),
        panels_(divide_up(units_, kPanel<T>)) {
    LUCID_ISA_CALL(active_isa(), get_loops(loops_));
    choose_cut();
  }

  size_t scratch_bytes() const override {
    return steps_ == 1 ? 0 : static_cast<size_t>(panels_ * panel_size()) * sizeof(T);
  }

 protected:
  /// An input that may be absent, or null.
  const T* given(const RunContext& context, size_t input) const {
    return input_if<T>(context, input < num_inputs_, input);
  }

  int64_t state_size() const { return batch_ * units_; }
  /// Time of visit `index`.
  int64_t time(int64_t index) const { return reverse_ ? steps_ - 1 - index : index; }
  /// The state before visit `index`.
  const T* state_before(const T* first, const T* states, int64_t index) const {
    return index == 0 ? first : states + time(index - 1) * state_size();
  }
  const T* last_state(const T* states) const { return states + time(steps_ - 1) * state_size(); }
  int64_t start(const Part& part, int64_t blocks) const {
    return part.row * blocks * units_ + part.unit;
  }
  /// Rows of time `index` of a sequence of `blocks` blocks, from the part's first element on.
  template <class P>
  P* at(P* sequence, int64_t index, const Part& part, int64_t blocks) const {
    if (sequence == nullptr) return nullptr;
    return sequence + time(index) * state_size() * blocks + start(part, blocks);
  }
  GateBlock gate_block(const Part& part) const { return {part.rows, part.units, units_}; }

  /// Calls body(visit, part) for visits 0, 1, ... in order; the parts of a visit cover the state.
  template <class Body>
  void for_each_visit(int64_t visits, const Body& body) const {
    const double part_ns = step_ns() / static_cast<double>(row_parts_ * unit_parts_);
    if (unit_parts_ == 1) {  // sequences do not depend on each other
      const double task_ns = part_ns * static_cast<double>(visits);
      parallel_for(row_parts_, 1, task_ns, [&](int64_t begin, int64_t end) {
        for (int64_t index = begin; index < end; ++index) {
          const Part part = part_of(index);
          for (int64_t visit = 0; visit < visits; ++visit) body(visit, part);
        }
      });
      return;
    }
    for (int64_t visit = 0; visit < visits; ++visit) {
      parallel_for(row_parts_ * unit_parts_, 1, part_ns, [&](int64_t begin, int64_t end) {
        for (int64_t index = begin; index < end; ++index) body(visit, part_of(index));
      });
    }
  }

  /// Panels of W^T, one after the other for each block: the factor of the forward.
  StepWeight<T> forward_weight(const T* weight, void* scratch) const {
    if (steps_ == 1) return {weight, false};
    T* packed = static_cast<T*>(scratch);
    pack(packed, [&](int64_t panel, int64_t block, T* to) {
      const int64_t column = panel * kPanel<T>;
      const int64_t columns = std::min(kPanel<T>, units_ - column);
      transpose(weight + (block * units_ + column) * units_, columns, to);
    });
    return {packed, true};
  }

  /// Panels of W: the factor of the backward.
  StepWeight<T> backward_weight(const T* weight, void* scratch) const {
    if (steps_ == 1) return {weight, false};
    T* packed = static_cast<T*>(scratch);
    pack(packed, [&](int64_t panel, int64_t block, T* to) {
      const int64_t column = panel * kPanel<T>;
      const int64_t columns = std::min(kPanel<T>, units_ - column);
      const T* from = weight + block * units_ * units_ + column;
      for (int64_t k = 0; k < units_; ++k) {
        std::copy_n(from + k * units_, columns, to + k * kPanel<T>);
      }
    });
    return {packed, true};
  }

  /// sums (a row of them `row_size` long) of the part += h W^T, block `block`. `h` is the whole
  /// state, `sums` points to the part's first element.
  void add_forward(const StepWeight<T>& weight, const T* h, int64_t block, const Part& part,
                   T* sums, int64_t row_size) const {
    for_each_panel(part, [&](int64_t panel, int64_t columns) {
      const int64_t column = panel * kPanel<T>;
      BlockProduct<T> product = product_of(part, columns);
      product.a = h + part.row * units_;
      product.a_row = units_;
      product.k = units_;
      product.c = sums + (column - part.unit);
      product.c_row = row_size;
      product.accumulate = true;
      if (weight.packed) {
        product.b = weight.data + panel * panel_size() + block * units_ * kPanel<T>;
        product.b_depth = kPanel<T>;
        product.b_column = 1;
      } else {
        product.b = weight.data + (block * units_ + column) * units_;
        product.b_depth = 1;
        product.b_column = units_;
      }
      block_product(product);
    });
  }

  /// dh of the part = d W, or dh += d W. `d` (N, blocks * H) is whole, `dh` too.
  void backward(const StepWeight<T>& weight, const T* d, const Part& part, bool accumulate,
                T* dh) const {
    for_each_panel(part, [&](int64_t panel, int64_t columns) {
      const int64_t column = panel * kPanel<T>;
      BlockProduct<T> product = product_of(part, columns);
      product.a = d + part.row * blocks_ * units_;
      product.a_row = blocks_ * units_;
      product.k = blocks_ * units_;
      product.c = dh + part.row * units_ + column;
      product.c_row = units_;
      product.accumulate = accumulate;
      product.b = weight.packed ? weight.data + panel * panel_size() : weight.data + column;
      product.b_depth = weight.packed ? kPanel<T> : units_;
      product.b_column = 1;
      block_product(product);
    });
  }

  /// The part of `to` = that of `from`, or zeros.
  void start_state(const T* from, const Part& part, T* to) const {
    const int64_t first = start(part, 1);
    for (int64_t row = 0; row < part.rows; ++row) {
      T* target = to + first + row * units_;
      if (from == nullptr) {
        std::fill_n(target, part.units, T{0});
      } else {
        std::copy_n(from + first + row * units_, part.units, target);
      }
    }
  }

  int64_t steps_;
  int64_t batch_;
  int64_t units_;
  int64_t blocks_;
  bool reverse_;
  RecurrentLoops<T> loops_;

 private:
  int64_t panel_size() const { return blocks_ * units_ * kPanel<T>; }

  double step_ns() const {
    const double row_bytes = 2.0 * static_cast<double>(blocks_ * units_ * units_) * sizeof(T);
    const double gates_ns = kGateNs * static_cast<double>((blocks_ + 1) * units_);
    return static_cast<double>(batch_) * (row_bytes / kProductBytesPerNs + gates_ns);
  }

  /// Parts of the rows need no meeting between steps; parts of the units do, but work for few rows.
  void choose_cut() {
    const int64_t threads = num_threads();
    if (threads == 1 || step_ns() * static_cast<double>(steps_) < kParallelNs) return;
    row_parts_ = std::clamp<int64_t>(batch_ / kMinRows, 1, threads);
    if (row_parts_ == threads || step_ns() < kParallelNs) return;
    row_parts_ = 1;
    unit_parts_ = std::min(panels_, threads);
  }

  Part part_of(int64_t index) const {
    const int64_t row_part = index / unit_parts_;
    const int64_t unit_part = index % unit_parts_;
    const int64_t row = batch_ * row_part / row_parts_;
    const int64_t panel = panels_ * unit_part / unit_parts_;
    const int64_t end = std::min(units_, panels_ * (unit_part + 1) / unit_parts_ * kPanel<T>);
    return {row, batch_ * (row_part + 1) / row_parts_ - row, panel * kPanel<T>,
            end - panel * kPanel<T>};
  }

  template <class Body>
  void for_each_panel(const Part& part, const Body& body) const {
    for (int64_t done = 0; done < part.units; done += kPanel<T>) {
      body((part.unit + done) / kPanel<T>, std::min(kPanel<T>, part.units - done));
    }
  }

  BlockProduct<T> product_of(const Part& part, int64_t columns) const {
    BlockProduct<T> product{};
    product.a_depth = 1;
    product.m = part.rows;
    product.n = columns;
    return product;
  }

  /// Calls body(panel, block, to) for each (H, kPanel) piece of the packed weight.
  template <class Body>
  void pack(T* packed, const Body& body) const {
    const double piece_ns = static_cast<double>(units_ * kPanel<T>) * 0.2;
    parallel_for(panels_ * blocks_, 1, piece_ns, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t panel = piece / blocks_;
        const int64_t block = piece % blocks_;
        body(panel, block, packed + panel * panel_size() + block * units_ * kPanel<T>);
      }
    });
  }

  /// to[k][j] = from[j][k] for j < rows, with rows of `to` kPanel apart.
  void transpose(const T* from, int64_t rows, T* to) const {
    if constexpr (sizeof(T) == sizeof(float)) {
      block_product_kernels().transpose(from, units_, rows, units_, to, kPanel<T>);
    } else {
      for (int64_t k = 0; k < units_; ++k) {
        for (int64_t j = 0; j < rows; ++j) to[k * kPanel<T> + j] = from[j * units_ + k];
      }
    }
  }

  size_t num_inputs_;
  int64_t panels_;
  int64_t row_parts_ = 1;
  int64_t unit_parts_ = 1;
};

/// Inputs x, h0, c0, w_hh; outputs gates, output, h_n, c_n, cells. The gates may lie where x does.
template <class T>
class Lstm final : public RecurrentKernel<T> {
  using Base = RecurrentKernel<T>;
  using Base::units_;

 public:
  explicit Lstm(const NodeView& view) : Base(view, view.input(0).shape, view.input(3).shape) {}

  void run(const RunContext& context) const override {
    const StepWeight<T> weight = Base::forward_weight(context.in<T>(3), context.scratch);
    const T* x = context.in<T>(0);
    T* gates = context.out<T>(0);
    T* output = context.out<T>(1);
    T* cells = context.out<T>(4);
    Base::for_each_visit(Base::steps_, [&](int64_t visit, const Part& part) {
      T* sums = Base::at(gates, visit, part, 4);
      const T* inputs = Base::at(x, visit, part, 4);
      const T* h = Base::state_before(context.in<T>(1), output, visit);
      for (int64_t place = 0; place < part.rows * 4 && inputs != sums; ++place) {
        std::copy_n(inputs + place * units_, part.units, sums + place * units_);
      }
      for (int64_t block = 0; block < 4; ++block) {
        Base::add_forward(weight, h, block, part, sums + block * units_, 4 * units_);
      }
      const T* c = Base::state_before(context.in<T>(2), cells, visit);
      Base::loops_.lstm(Base::gate_block(part), c + Base::start(part, 1), sums,
                        Base::at(cells, visit, part, 1), Base::at(output, visit, part, 1));
    });
    std::copy_n(Base::last_state(output), Base::state_size(), context.out<T>(2));
    std::copy_n(Base::last_state(cells), Base::state_size(), context.out<T>(3));
  }
};

/// Inputs gates, cells, c0, w_hh and the gradients of the five outputs; outputs dx, dh0, dc0. dx
/// may lie where the gates do.
template <class T>
class LstmGrad final : public RecurrentKernel<T> {
  using Base = RecurrentKernel<T>;

 public:
  explicit LstmGrad(const NodeView& view) : Base(view, view.input(0).shape, view.input(3).shape) {}

  void run(const RunContext& context) const override {
    const StepWeight<T> weight = Base::backward_weight(context.in<T>(3), context.scratch);
    const T* cells = context.in<T>(1);
    T* d_x = context.out<T>(0);
    T* dh = context.out<T>(1);
    T* dc = context.out<T>(2);
    Base::for_each_visit(Base::steps_ + 1, [&](int64_t visit, const Part& part) {
      const int64_t index = Base::steps_ - 1 - visit;
      if (visit == 0) {
        Base::start_state(Base::given(context, 5), part, dh);
        Base::start_state(Base::given(context, 6), part, dc);
      } else {
        Base::backward(weight, d_x + Base::time(index + 1) * Base::state_size() * 4, part, false,
                       dh);
      }
      if (index < 0) return;
      const int64_t start = Base::start(part, 1);
      const T* c_before = Base::state_before(context.in<T>(2), cells, index);
      const StepGrads<T> grads{Base::at(Base::given(context, 4), index, part, 1),
                               Base::at(Base::given(context, 7), index, part, 4),
                               Base::at(Base::given(context, 8), index, part, 1)};
      Base::loops_.lstm_grad(Base::gate_block(part), Base::at(context.in<T>(0), index, part, 4),
                             Base::at(cells, index, part, 1), c_before + start, grads, dh + start,
                             dc + start, Base::at(d_x, index, part, 4));
    });
  }
};

/// Inputs x, h0, w_hh, b_hh; outputs output, h_n, gates.
template <class T>
class Gru final : public RecurrentKernel<T> {
  using Base = RecurrentKernel<T>;
  using Base::units_;

 public:
  explicit Gru(const NodeView& view)
      : Base(view, view.input(0).shape, view.input(2).shape), has_bias_(view.has(3)) {}

  void run(const RunContext& context) const override {
    const StepWeight<T> weight = Base::forward_weight(context.in<T>(2), context.scratch);
    const T* x = context.in<T>(0);
    const T* bias = input_if<T>(context, has_bias_, 3);
    T* output = context.out<T>(0);
    T* gates = context.out<T>(2);
    Base::for_each_visit(Base::steps_, [&](int64_t visit, const Part& part) {
      T* sums = Base::at(gates, visit, part, 4);
      const T* inputs = Base::at(x, visit, part, 3);
      const T* h = Base::state_before(context.in<T>(1), output, visit);
      start_sums(inputs, bias, part, sums);
      constexpr int64_t kPlace[] = {0, 1, 3};  // where r, z and the projected state are summed
      for (int64_t block = 0; block < 3; ++block) {
        Base::add_forward(weight, h, block, part, sums + kPlace[block] * units_, 4 * units_);
      }
      Base::loops_.gru(Base::gate_block(part), inputs, h + Base::start(part, 1), sums,
                       Base::at(output, visit, part, 1));
    });
    std::copy_n(Base::last_state(output), Base::state_size(), context.out<T>(1));
  }

 private:
  /// x + bias for r and z, the bias for the projected state.
  void start_sums(const T* inputs, const T* bias, const Part& part, T* sums) const {
    for (int64_t row = 0; row < part.rows; ++row) {
      T* to = sums + row * 4 * units_;
      const T* from = inputs + row * 3 * units_;
      for (int64_t block = 0; block < 2; ++block, to += units_, from += units_) {
        if (bias == nullptr) {
          std::copy_n(from, part.units, to);
          continue;
        }
        const T* term = bias + block * units_ + part.unit;
        for (int64_t j = 0; j < part.units; ++j) to[j] = from[j] + term[j];
      }
      to += units_;
      if (bias == nullptr) {
        std::fill_n(to, part.units, T{0});
      } else {
        std::copy_n(bias + 2 * units_ + part.unit, part.units, to);
      }
    }
  }

  bool has_bias_;
};

/// Inputs gates, output, h0, w_hh and the gradients of the three outputs; outputs dx, the gradient
/// of the projected state, dh0.
template <class T>
class GruGrad final : public RecurrentKernel<T> {
  using Base = RecurrentKernel<T>;

 public:
  explicit GruGrad(const NodeView& view) : Base(view, view.input(0).shape, view.input(3).shape) {}

  void run(const RunContext& context) const override {
    const StepWeight<T> weight = Base::backward_weight(context.in<T>(3), context.scratch);
    T* d_x = context.out<T>(0);
    T* d_projected = context.out<T>(1);
    T* dh = context.out<T>(2);
    Base::for_each_visit(Base::steps_ + 1, [&](int64_t visit, const Part& part) {
      const int64_t index = Base::steps_ - 1 - visit;
      if (visit == 0) {
        Base::start_state(Base::given(context, 5), part, dh);
      } else {
        Base::backward(weight, d_projected + Base::time(index + 1) * Base::state_size() * 3, part,
                       true, dh);
      }
      if (index < 0) return;
      const int64_t start = Base::start(part, 1);
      const T* h_before = Base::state_before(context.in<T>(2), context.in<T>(1), index);
      const StepGrads<T> grads{Base::at(Base::given(context, 4), index, part, 1),
                               Base::at(Base::given(context, 6), index, part, 4), nullptr};
      Base::loops_.gru_grad(Base::gate_block(part), Base::at(context.in<T>(0), index, part, 4),
                            h_before + start, grads, dh + start, Base::at(d_x, index, part, 3),
                            Base::at(d_projected, index, part, 3));
    });
  }
};

/// Inputs x, h0, w_hh; outputs output, h_n.
template <class T>
class Rnn final : public RecurrentKernel<T> {
  using Base = RecurrentKernel<T>;
  using Base::units_;

 public:
  explicit Rnn(const NodeView& view)
      : Base(view, view.input(0).shape, view.input(2).shape), relu_(view.node.flag("relu")) {}

  void run(const RunContext& context) const override {
    const StepWeight<T> weight = Base::forward_weight(context.in<T>(2), context.scratch);
    T* output = context.out<T>(0);
    Base::for_each_visit(Base::steps_, [&](int64_t visit, const Part& part) {
      const int64_t step = Base::time(visit) * Base::state_size();
      Base::start_state(context.in<T>(0) + step, part, output + step);
      T* sums = Base::at(output, visit, part, 1);
      const T* h = Base::state_before(context.in<T>(1), output, visit);
      Base::add_forward(weight, h, 0, part, sums, units_);
      Base::loops_.rnn(Base::gate_block(part), relu_, sums);
    });
    std::copy_n(Base::last_state(output), Base::state_size(), context.out<T>(1));
  }

 private:
  bool relu_;
};

/// Inputs output, w_hh and the gradients of the two outputs; outputs dx, dh0.
template <class T>
class RnnGrad final : public RecurrentKernel<T> {
  using Base = RecurrentKernel<T>;

 public:
  explicit RnnGrad(const NodeView& view)
      : Base(view, view.input(0).shape, view.input(1).shape), relu_(view.node.flag("relu")) {}

  void run(const RunContext& context) const override {
    const StepWeight<T> weight = Base::backward_weight(context.in<T>(1), context.scratch);
    T* d_x = context.out<T>(0);
    T* dh = context.out<T>(1);
    Base::for_each_visit(Base::steps_ + 1, [&](int64_t visit, const Part& part) {
      const int64_t index = Base::steps_ - 1 - visit;
      if (visit == 0) {
        Base::start_state(Base::given(context, 3), part, dh);
      } else {
        Base::backward(weight, d_x + Base::time(index + 1) * Base::state_size(), part, false, dh);
      }
      if (index < 0) return;
      const StepGrads<T> grads{Base::at(Base::given(context, 2), index, part, 1), nullptr, nullptr};
      Base::loops_.rnn_grad(Base::gate_block(part), relu_,
                            Base::at(context.in<T>(0), index, part, 1), grads,
                            dh + Base::start(part, 1), Base::at(d_x, index, part, 1));
    });
  }

 private:
  bool relu_;
};

constexpr KernelRow kRows[] = {
    {"lstm_layer", make_floating<Lstm>}, {"lstm_layer_grad", make_floating<LstmGrad>},
    {"gru_layer", make_floating<Gru>},   {"gru_layer_grad", make_floating<GruGrad>},
    {"rnn_layer", make_floating<Rnn>},   {"rnn_layer_grad", make_floating<RnnGrad>},
};

}  // namespace

std::span<const KernelRow> recurrent_kernels() { return kRows; }

}  // namespace lucid::cpu
