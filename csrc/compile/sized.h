// SizedTrace: one trace for all sizes of the arguments' first axis.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/trace/recorder.h"

namespace lucid::compile {

/// A trace whose sizes and other integers are functions a * size + b. They are found by comparing
/// two traces of the same code at two sizes, so the code itself needs no symbolic sizes.
class SizedTrace {
 public:
  /// Throws TraceError that says what differs otherwise between the traces.
  SizedTrace(const runtime::Trace& trace, int64_t size, const runtime::Trace& other,
             int64_t other_size);

  /// The trace for another size: shapes are inferred again, nothing else is done.
  /// Throws what infer throws for a size that does not fit.
  runtime::Trace at(int64_t size) const;

  /// What the trace does not say, for a file: node, attribute, element of a list, and a and b of
  /// a * size + b.
  using SavedPlace = std::array<int64_t, 5>;
  std::vector<SavedPlace> save() const;
  /// Throws UserError unless these go with a trace of that size.
  static SizedTrace restore(const runtime::Trace& trace, int64_t size,
                            const std::vector<SavedPlace>& places,
                            std::vector<bool> sized_arguments);

  /// For each argument: does its first axis follow the size?
  const std::vector<bool>& sized_arguments() const { return sized_arguments_; }
  /// False if a coefficient is so large that two sizes could not tell it from a square: check()
  /// a third one then.
  bool is_certain() const { return is_certain_; }
  /// Throws TraceError unless a trace at that size is what at() gives.
  void check(const runtime::Trace& trace, int64_t size) const;

 private:
  struct Affine {
    int64_t factor = 0;
    int64_t offset = 0;
    int64_t at(int64_t size) const { return factor * size + offset; }
  };
  /// An integer attribute of a node, one element of a list of them, or a whole real number.
  struct Place {
    size_t node;
    size_t attr;
    size_t element;
    Affine value;
  };
  SizedTrace(runtime::Trace trace, int64_t size, std::vector<bool> sized_arguments);
  Affine affine(int64_t value, int64_t other, size_t node, size_t attr);
  void compare_values(const runtime::Trace& other);
  void compare_attrs(size_t node, const ir::Node& mine, const ir::Node& others);
  void compare_attr(size_t node, size_t attr, const ir::AttrValue& mine,
                    const ir::AttrValue& others);

  std::unordered_map<uint32_t, ir::ValueId> roots_of_seeds() const;

  runtime::Trace trace_;
  int64_t size_;
  int64_t other_size_;
  std::vector<bool> sized_arguments_;
  std::vector<Place> places_;  // in the order of the nodes
  bool is_certain_ = true;
};

}  // namespace lucid::compile
