// Recorder: while it is on, dispatch records operations into a graph instead of running them.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "runtime/dispatch/dispatch.h"
#include "runtime/generator.h"
#include "runtime/tensor/tensor.h"

namespace lucid::runtime {

/// An outside tensor that the trace read: an input of the graph, fetched at each run.
struct Capture {
  TensorRef tensor{};
  ir::ValueId value{};
};

/// An outside tensor that the trace wrote: its new value is an output, written back after a run.
struct StateWrite {
  int argument = -1;   ///< place of the argument that was written, or -1
  TensorRef tensor{};  ///< the outside tensor otherwise
  ir::ValueId value{};
};

/// A generator that the trace drew from.
struct Draw {
  GeneratorRef generator;
  ir::ValueId value{};
  int64_t counters = 0;  ///< counters of one run
};

/// A value whose gradient belongs to an argument or a captured tensor.
struct GradTarget {
  int argument = -1;
  int capture = -1;
  ir::ValueId value{};
};

/// The backward of some results, where the trace itself had to record it: nodes of its graph.
struct RecordedBackward {
  std::vector<bool> mask;          ///< by differentiable result: does it bring a gradient?
  std::vector<ir::ValueId> seeds;  ///< the gradients that come, one for each set flag
  ir::Grads grads;                 ///< by target
  std::vector<size_t> origins;     ///< of its nodes
  size_t first_node = 0;
  bool operator==(const RecordedBackward&) const = default;
};

/// Something that a compiled step cannot hold, and that nothing recorded after it depends on.
struct Refusal {
  std::string text;      ///< the whole message
  size_t num_nodes = 0;  ///< operations recorded before it
};

/// What one trace found.
struct Trace {
  ir::Graph graph;
  std::vector<ir::ValueId> results;
  std::vector<bool> result_tracks;  ///< by result: a gradient may be asked for
  std::vector<ir::ValueId> arguments;
  std::vector<ir::ValueId> scalars;  ///< 0-d inputs whose numbers come with each run
  std::vector<Capture> captures;
  std::vector<StateWrite> writes;
  std::vector<Draw> draws;
  std::vector<GradTarget> targets;
  /// Ends of segments but the last: numbers of nodes recorded when mark() was called.
  std::vector<size_t> marks;
  /// None where no rule of a function has a part; that of all results comes first.
  std::vector<RecordedBackward> backwards;
  std::vector<Refusal> refusals;  ///< of a recorder that notes them
};

/// Places of the results that a gradient can be asked of.
std::vector<size_t> differentiable_results(const Trace& trace);

/// The gradient of one result of a function as a tensor that leads back to the function: what its
/// rule reads of its own results where second derivatives are asked for.
using TieResult = std::function<TensorRef(size_t result, const TensorRef& tensor)>;
/// A gradient rule of the language above: from gradients of the results (null: absent) to those of
/// the arguments (null: none). Records its operations while its trace is on.
using GradientRule = std::function<std::vector<TensorRef>(
    const std::vector<TensorRef>& grads, bool create_graph, const TieResult& tie_result)>;

class Recorder {
 public:
  /// Becomes the thread's recorder; `what` begins its messages. Throws TraceError inside another
  /// trace.
  explicit Recorder(std::string what = "make_step");
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  TraceId id() const { return id_; }

  /// True if a trace records in some thread.
  static bool is_any_on() { return num_on_.load(std::memory_order_relaxed) != 0; }

  /// The symbolic stand-in of the next argument; `size`, if given, is that of its first axis.
  TensorRef argument(const TensorRef& source, std::optional<int64_t> size = {});

  /// The stand-in of the next number that each run brings: 0-d, of a floating dtype.
  TensorRef scalar(DType dtype, Device device);

  /// Records a call. Called by dispatch; operands are promoted already.
  std::vector<Variable> record(const ir::Op& op, std::span<const Operand> operands,
                               ir::Attrs attrs);

  /// Gradients of recorded values, as recorded values: autograd.grad inside a trace.
  std::vector<TensorRef> grad(std::span<const TensorRef> roots, std::span<const TensorRef> seeds,
                              std::span<const TensorRef> inputs, bool create_graph,
                              bool allow_unused);

  /// The results, as made by a function that has a gradient rule of its own. An argument that is
  /// no tensor is null.
  std::vector<Variable> tie(std::span<const TensorRef> arguments,
                            std::span<const TensorRef> results, GradientRule rule);

  /// Records the backward if rules of functions may have a part in it: of the first result, the
  /// loss, or of all of them and of subsets. Rules may read outside tensors, which become inputs of
  /// the graph. Called last before finish, with the same results.
  void differentiate(std::span<const TensorRef> results, bool ends_in_loss);

  /// Between the two, the thread runs eagerly and sees tensors as they are outside of the trace.
  void pause() const;
  void resume();

  /// Refuses to record more operations than that.
  void limit_nodes(size_t most) { max_nodes_ = most; }

  /// From here on refuse() notes what it is given instead of throwing it.
  void note_refusals() { notes_refusals_ = true; }
  void refuse(const std::string& what);

  /// Ends a segment here.
  void mark() { trace_.marks.push_back(trace_.graph.nodes().size()); }

  /// The cell as the trace sees it. Outside cells never hold a value of the trace, which other
  /// threads would see: what the trace puts in goes to a stand-in of the recorder's.
  Cell& seen(Cell& cell);
  /// Where the new value of a tensor's cell goes.
  Cell& written(const TensorRef& tensor);
  /// Where a view that is taken again goes.
  Cell& refreshed(const std::shared_ptr<Cell>& cell);
  /// The recorded value of an operand: captures an outside tensor.
  ir::ValueId value_of(const TensorRef& tensor);

  /// Ends the trace; `results` are values of the graph or outside tensors.
  Trace finish(std::span<const TensorRef> results);
  /// Ends the trace without results: what was recorded so far.
  Trace abandon();

 private:
  class Rules;
  struct RuleEntry {
    GradientRule run;
    std::vector<size_t> arguments;  // those that are tensors: inputs of the node
    Device device;
  };
  struct StandIn {
    std::shared_ptr<Cell> outside;
    TensorRef tensor;  ///< null for a view that was only taken again
    Cell cell;
  };

  ir::ValueId value_of(const Variable& variable, const ir::Op& op) const;
  ir::ValueId value_of(const GeneratorRef& generator, int64_t counters, ir::Attrs& attrs,
                       const ir::Op& op);
  ir::ValueId capture(const TensorRef& tensor);
  ir::ValueId local_leaf(const TensorRef& tensor);
  bool is_touched(const Tensor& tensor) const;
  ir::Grads apply_rule(const ir::Node& node, const ir::Grads& grads,
                       const std::vector<bool>& wanted, bool create_graph);
  TensorRef symbolic(ir::ValueId id, Device device, bool tracks) const;
  Cell& stand_in(const std::shared_ptr<Cell>& cell, const TensorRef& tensor);
  RecordedBackward record_backward(std::span<const size_t> roots, std::vector<bool> mask);
  void note_results(std::span<const TensorRef> results);
  void collect_writes();
  void end();
  Device device_of(std::span<const Operand> operands) const;

  std::string what_;
  TraceId id_;
  Device device_ = Device::kCpu;  ///< of the arguments: what is made of numbers goes there
  Trace trace_;
  std::vector<TensorRef> proxies_;
  // The cell of each argument, and the cell whose memory it is a view of.
  struct Source {
    const Cell* cell;
    const Cell* root;
  };
  std::vector<Source> argument_sources_;
  // A tensor of the trace that requires_grad_() made a leaf: its value, and that value cut off.
  struct LocalLeaf {
    TensorRef tensor;
    ir::ValueId value;
    ir::ValueId leaf;
  };
  std::vector<LocalLeaf> local_leaves_;
  std::deque<StandIn> stand_ins_;  // references stay good
  std::unordered_map<const Cell*, StandIn*> stand_in_of_;
  std::unordered_map<const void*, ir::ValueId> captured_;  // by tensor (tracked) or cell
  std::deque<RuleEntry> rules_;  // references stay good: a rule may tie further ones
  bool is_differentiating_ = false;
  bool has_ended_ = false;
  bool notes_refusals_ = false;
  size_t max_nodes_ = ~size_t{0};
  static inline std::atomic<int> num_on_ = 0;
};

/// Refuses what a trace cannot hold where the code can go on as if it had not asked. Throws
/// TraceError with `what`, unless the thread's recorder notes it.
void refuse(const std::string& what);

}  // namespace lucid::runtime
