// Traces as text and numbers, for files: everything but the tensors that a trace captured.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/trace/recorder.h"

namespace lucid::compile {

/// What of a trace can be written down. Values stand as outputs of the graph, in the order of the
/// fields: results, arguments, captures, writes, draws, targets.
struct SavedTrace {
  std::string graph;
  std::vector<bool> result_tracks;  ///< one a result
  int64_t num_arguments = 0;
  int64_t num_captures = 0;
  std::vector<int> writes;        ///< by write: place of the argument, or -1 for a tensor
  std::vector<int64_t> counters;  ///< by draw, all from the default generator
  std::vector<std::pair<int, int>> targets;  ///< places among arguments and captures, or -1
  std::vector<int64_t> marks;
};

/// Throws UnsupportedError for a trace that draws from a generator of its own.
SavedTrace save(const runtime::Trace& trace);

/// The trace again, with the tensors that it captures and those that it writes (null for an
/// argument). Throws UserError for what is no trace, or tensors of other types than it saw.
runtime::Trace restore(const SavedTrace& saved, std::span<const runtime::TensorRef> captures,
                       std::span<const runtime::TensorRef> written);

}  // namespace lucid::compile
