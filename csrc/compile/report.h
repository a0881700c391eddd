// What can be asked of a compiled program: its memory and its times.
#pragma once

#include <cstdint>
#include <vector>

namespace lucid::compile {

/// Bytes of one segment of a step.
struct SegmentMemory {
  int64_t parameters = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t arena_peak = 0;
};

/// Bytes of a program, exact and known before the first run.
struct ProgramMemory {
  int64_t parameters = 0;
  int64_t inputs = 0;
  int64_t outputs = 0;
  int64_t arena_peak = 0;
  std::vector<SegmentMemory> segments;
};

/// Seconds spent on compiling, and on runs so far.
struct ProgramTiming {
  double compile_seconds = 0;
  int64_t runs = 0;
  double run_seconds = 0;
};

}  // namespace lucid::compile
