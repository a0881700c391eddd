#include "runtime/process.h"

namespace lucid::runtime {

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

ProcessState& process_state() {
  static ProcessState state;
  return state;
}

}  // namespace lucid::runtime
