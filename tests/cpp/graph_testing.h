// What the tests of graphs share: parsing with the real operations, and text compared by line.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"
#include "ops/registry.h"
#include "testing.h"

namespace lucid::testing {

inline ir::Graph parse_graph(std::string_view text) {
  return ir::parse(text, [](std::string_view name) { return ops::find(name); });
}

/// The text without its first newline and with the indentation of raw strings kept.
inline std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of('\n');
  return std::string(begin == std::string_view::npos ? "" : text.substr(begin));
}

inline void check_graph(const char* file, int line, const ir::Graph& graph,
                        std::string_view expected) {
  const std::string text = ir::to_string(graph);
  if (text == trimmed(expected)) return;
  fail(file, line, "the graph is\n" + text + "but should be\n" + trimmed(expected));
}

}  // namespace lucid::testing

/// CHECK_GRAPH(graph, R"(graph { ... })")
#define CHECK_GRAPH(graph, expected) \
  ::lucid::testing::check_graph(__FILE__, __LINE__, (graph), (expected))
