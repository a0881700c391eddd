// Which version of the lowerings this build holds.
#pragma once

namespace lucid::metal {

/// The package's version and a checksum of the sources that decide what an executable is made of.
const char* lowering_id();

}  // namespace lucid::metal
