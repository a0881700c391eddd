// Packages of the double: a folder with a list of files and the graph that an executable runs.
#pragma once

#include <filesystem>

#include "node.h"

namespace metalhost {

/// Writes what the schedule runs, its feeds and targets in their order. Says nothing where it
/// cannot: the method of the framework returns nothing and has no error either.
void write_package(const std::filesystem::path& folder, const Schedule& schedule);

/// Reads a package. Ends the process where it is none or is damaged.
Schedule read_package(const std::filesystem::path& folder);

}  // namespace metalhost
