// Scheduling: an order of the same nodes in which values live for a shorter time.
#pragma once

#include "ir/graph.h"
#include "passes/memory_model.h"
#include "passes/order.h"

namespace lucid::passes {

/// An order that is the graph's own, but for nodes that need less memory elsewhere: what makes more
/// than it frees runs as late as it can, then what frees at least as much as it makes as soon as it
/// can. So the gradient of a weight comes before that of the input, as it ends the life of what was
/// kept for it. Impure nodes keep their order; element-wise neighbours stay together, and those
/// that end the graph, as updates do, stay there. The peak is not always lower: whoever asks
/// compares. Time grows with the number of operands, but for a logarithm.
Order schedule(const ir::Graph& graph, const MemoryModel& model);

}  // namespace lucid::passes
