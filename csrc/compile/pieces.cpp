#include "compile/pieces.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "runtime/process.h"

namespace lucid::compile {
namespace {

constexpr uint32_t kNoSlot = ~0u;

}  // namespace

Pieces::Pieces(const ir::Graph& graph, const passes::Segmentation& segmentation, Device device,
               const Options& options) {
  std::vector<uint32_t> slot_of_value(graph.num_values(), kNoSlot);
  for (const ir::Input& input : graph.inputs()) {
    slot_of_value[index(input.value)] = static_cast<uint32_t>(slot_bytes_.size());
    slot_bytes_.push_back(graph.type(input.value).size_bytes());
  }
  num_inputs_ = slot_bytes_.size();
  const std::vector<passes::Piece> pieces = passes::split(graph, segmentation);
  std::vector<uint32_t> returned(graph.num_values(), kNoSlot);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].segment == segmentation.num_segments - 1) last_ = i;
    add_member(pieces[i], slot_of_value);
    for (size_t j = 0; j < pieces[i].outputs.size(); ++j) {
      returned[index(pieces[i].outputs[j])] = pieces_.back().outputs[j];
    }
  }
  const bool is_whole = pieces.size() == 1 && segmentation.num_segments == 1;
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const ir::ValueId output = graph.outputs()[i];
    output_slots_.push_back(is_whole ? pieces_[0].outputs[i] : returned[index(output)]);
  }
  std::vector<uint32_t> sorted = output_slots_;
  std::ranges::sort(sorted);
  has_distinct_outputs_ = std::ranges::adjacent_find(sorted) == sorted.end();
  find_dead();
  const std::vector<int64_t> kept = kept_bytes();
  compile(pieces, kept, device, options);
  measure(graph, segmentation.num_segments, kept);
  if (options.memory_limit) note_recomputation(kept);
  if (pieces_[last_].is_empty) segments_.pop_back();
}

void Pieces::add_member(const passes::Piece& piece, std::vector<uint32_t>& slot_of_value) {
  Member member;
  member.segment = piece.segment;
  for (const ir::ValueId input : piece.inputs) member.inputs.push_back(slot_of_value[index(input)]);
  for (const ir::ValueId output : piece.outputs) {
    // Every output gets a slot of its own, also one that is an input or stands twice.
    const auto slot = static_cast<uint32_t>(slot_bytes_.size());
    const size_t place = member.outputs.size();
    slot_bytes_.push_back(piece.graph.type(piece.graph.outputs()[place]).size_bytes());
    member.outputs.push_back(slot);
    if (slot_of_value[index(output)] == kNoSlot) slot_of_value[index(output)] = slot;
  }
  std::vector<uint32_t> all(num_inputs_);
  std::iota(all.begin(), all.end(), 0u);
  member.takes_all_inputs = member.inputs == all;
  member.is_empty = piece.graph.nodes().empty() && piece.outputs.empty();
  pieces_.push_back(std::move(member));
}

// A slot dies with its last reader, unless it is an input or a result of the step. A value that
// crosses from forward to backward is kept by the step's tape node until the backward is over.
void Pieces::find_dead() {
  std::vector<size_t> last_reader(slot_bytes_.size(), 0);
  for (size_t i = 0; i < pieces_.size(); ++i) {
    for (const uint32_t slot : pieces_[i].outputs) last_reader[slot] = i;
    for (const uint32_t slot : pieces_[i].inputs) last_reader[slot] = i;
  }
  for (const uint32_t slot : output_slots_) last_reader[slot] = pieces_.size();
  for (size_t slot = num_inputs_; slot < slot_bytes_.size(); ++slot) {
    if (last_reader[slot] < pieces_.size()) {
      pieces_[last_reader[slot]].dead.push_back(static_cast<uint32_t>(slot));
    }
  }
}

// By piece: bytes of the values kept between pieces while it runs, its own included. Results of the
// step do not count.
std::vector<int64_t> Pieces::kept_bytes() const {
  std::vector<bool> is_result(slot_bytes_.size(), false);
  for (const uint32_t slot : output_slots_) is_result[slot] = true;
  std::vector<int64_t> result;
  int64_t kept = 0;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    for (const uint32_t slot : pieces_[i].outputs) {
      if (!is_result[slot]) kept += slot_bytes_[slot];
    }
    result.push_back(kept);
    // The tape node keeps what the forward made until the whole backward is over.
    for (const uint32_t slot : pieces_[i].dead) {
      const bool made_by_backward = std::ranges::any_of(
          pieces_.begin() + static_cast<int64_t>(last_) + 1, pieces_.end(),
          [&](const Member& maker) {
            return std::ranges::find(maker.outputs, slot) != maker.outputs.end();
          });
      if (i < last_ || made_by_backward) kept -= slot_bytes_[slot];
    }
  }
  return result;
}

// All pieces are tried, so that the smallest peak of the whole is known if one fails.
void Pieces::compile(const std::vector<passes::Piece>& pieces, const std::vector<int64_t>& kept,
                     Device device, const Options& options) {
  bool is_met = true;
  int64_t smallest = 0;
  int64_t before = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Options own = options;
    if (own.memory_limit) *own.memory_limit -= kept[i];
    try {
      pieces_[i].compiled = compile_graph(pieces[i].graph, device, own);
      const std::optional<Recomputation>& done = pieces_[i].compiled->recomputation;
      if (done) before = std::max(before, kept[i] + done->peak_before);
    } catch (const LimitError& error) {
      is_met = false;
      smallest = std::max(smallest, kept[i] + error.smallest());
      before = std::max(before, kept[i] + error.before());
    }
  }
  if (!is_met) throw LimitError(*options.memory_limit, smallest, before);
}

void Pieces::note_recomputation(const std::vector<int64_t>& kept) {
  Recomputation& sum = recomputation_.emplace();
  sum.peak = arena_peak_;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Recomputation& done = *pieces_[i].compiled->recomputation;
    sum.peak_before = std::max(sum.peak_before, kept[i] + done.peak_before);
    sum.num_repeated += done.num_repeated;
    sum.repeated += done.repeated;
    sum.whole += done.whole;
  }
}

void Pieces::measure(const ir::Graph& graph, int num_segments, const std::vector<int64_t>& kept) {
  segments_.resize(static_cast<size_t>(num_segments));
  std::vector<bool> is_counted(slot_bytes_.size(), false);
  for (const uint32_t slot : output_slots_) {
    if (!is_counted[slot]) output_bytes_ += slot_bytes_[slot];
    is_counted[slot] = true;
  }
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Member& member = pieces_[i];
    const int64_t arena = member.compiled->executable->memory().arena_peak;
    SegmentMemory& segment = segments_[static_cast<size_t>(member.segment)];
    segment.arena_peak = std::max(segment.arena_peak, arena);
    int64_t parameters = 0;
    int64_t inputs = 0;
    for (const uint32_t slot : member.inputs) {
      const bool is_parameter =
          slot < num_inputs_ && graph.inputs()[slot].role == ir::Role::kParameter;
      (is_parameter ? parameters : inputs) += slot_bytes_[slot];
    }
    segment.parameters = std::max(segment.parameters, parameters);
    segment.inputs = std::max(segment.inputs, inputs);
    for (const uint32_t slot : member.outputs) segment.outputs += slot_bytes_[slot];
    arena_peak_ = std::max(arena_peak_, kept[i] + arena);
  }
}

std::vector<backends::BufferRef> Pieces::gathered(const Member& member, const Table& table) const {
  std::vector<backends::BufferRef> inputs;
  inputs.reserve(member.inputs.size());
  for (const uint32_t slot : member.inputs) inputs.push_back(table[slot]);
  return inputs;
}

void Pieces::run(const Member& member, Table& table) const {
  if (member.is_empty) return;
  std::vector<backends::BufferRef> own;
  std::span<const backends::BufferRef> inputs(table.data(), member.inputs.size());
  if (!member.takes_all_inputs) {
    own = gathered(member, table);
    inputs = own;
  }
  std::vector<backends::BufferRef> outputs = member.compiled->executable->run(inputs, nullptr);
  runtime::process_state().executable_runs.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < outputs.size(); ++i) table[member.outputs[i]] = std::move(outputs[i]);
}

void Pieces::run_forward(Table& table) const {
  table.resize(slot_bytes_.size());
  for (size_t i = 0; i <= last_; ++i) {
    run(pieces_[i], table);
    if (i == last_) return;
    for (const uint32_t slot : pieces_[i].dead) table[slot].reset();
  }
}

void Pieces::rerun_last(Table& table) const { run(pieces_[last_], table); }

void Pieces::run_backward(Table& table) const {
  for (size_t i = last_ + 1; i < pieces_.size(); ++i) {
    run(pieces_[i], table);
    for (const uint32_t slot : pieces_[i].dead) table[slot].reset();
  }
}

std::vector<backends::KernelTime> Pieces::profile(Table& table) const {
  table.resize(slot_bytes_.size());
  std::vector<backends::KernelTime> times;
  for (const Member& member : pieces_) {
    if (member.is_empty) continue;
    const std::vector<backends::BufferRef> inputs = gathered(member, table);
    std::vector<backends::BufferRef> outputs;
    for (auto& time : member.compiled->executable->profile(inputs, outputs)) {
      times.push_back(std::move(time));
    }
    for (size_t i = 0; i < outputs.size(); ++i) table[member.outputs[i]] = std::move(outputs[i]);
  }
  return times;
}

size_t Pieces::num_nodes() const {
  size_t count = 0;
  for (const Member& member : pieces_) count += member.compiled->graph.nodes().size();
  return count;
}

std::string Pieces::text() const {
  std::string text;
  for (const Member& member : pieces_) text += ir::to_string(member.compiled->graph);
  return text;
}

}  // namespace lucid::compile
