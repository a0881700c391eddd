// Packages: compiled executables on disk, and how a loaded one is proved to be the right one.
//
// A loaded executable does not tell the order of its feeds and targets, and no documentation
// promises that it is the order of the executable that was written. So the order is noted beside
// the package together with some results of a run on made-up numbers, and a loaded executable must
// give those results again before it is used.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backends/disk_cache.h"
#include "backends/metal/lowering.h"
#include "backends/metal/retained.h"

namespace lucid::metal {

/// Feeds and targets of an executable in its own order, as places in the lists it was made from.
struct ArgumentOrder {
  std::vector<size_t> feeds;
  std::vector<size_t> targets;
};

/// Some numbers of each target of a run on made-up numbers, by place in the list of targets.
using Samples = std::vector<std::vector<double>>;

/// What stands beside a package.
struct PackageNotes {
  ArgumentOrder order;
  Samples samples;
};
std::string to_text(const PackageNotes& notes);
/// Nothing unless the text holds orders of that many feeds and targets, and samples.
std::optional<PackageNotes> parse_notes(const std::string& text, size_t num_feeds,
                                        size_t num_targets);

/// Bytes of a made-up feed: small positive numbers of a size that tells `place`, zeros and ones for
/// integers and bools.
std::string made_up(const ValueType& type, size_t place);
/// Some elements of a result; not finite ones are NaN.
std::vector<double> sampled(const void* data, const ValueType& type);
/// True if a result has a number that is neither 0 nor NaN.
bool tell_something(const Samples& samples);
/// True if all results are equal but for rounding.
bool agree(const Samples& found, const Samples& expected);

/// What an executable of the graph depends on.
backends::DiskCache::Key disk_key(const ir::Graph& graph, const LoweringOptions& options);

/// Writes the executable below `files`. Call with the device's mutex held.
void write_package(MPSGraphExecutable* executable, const std::filesystem::path& files);
/// Loads what write_package wrote; null if the system refuses it. As above.
Retained<MPSGraphExecutable*> read_package(const std::filesystem::path& files,
                                           MPSGraphCompilationDescriptor* descriptor);

}  // namespace lucid::metal
