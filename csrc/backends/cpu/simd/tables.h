// The tables that the element-wise vectorised files export, once an instruction set.
#pragma once

#include <span>

#include "backends/cpu/simd/isa.h"
#include "backends/cpu/simd/tile.h"

LUCID_ISA_DECLARE(std::span<const TileRow> arithmetic_tiles();
                  std::span<const TileRow> division_tiles();
                  std::span<const TileRow> comparison_tiles();
                  std::span<const TileRow> exponential_tiles();
                  std::span<const TileRow> trigonometric_tiles();
                  std::span<const TileRow> activation_tiles();
                  TileFn cast_tile(DType from, DType to);)
