#include "backends/cpu/simd/tile.h"

#include <span>

#include "backends/cpu/simd/tables.h"

namespace lucid::cpu {

TileFn find_tile(std::string_view op, DType input_dtype, Isa isa) {
  const std::span<const TileRow> tables[] = {
      LUCID_ISA_CALL(isa, arithmetic_tiles()),    LUCID_ISA_CALL(isa, division_tiles()),
      LUCID_ISA_CALL(isa, comparison_tiles()),    LUCID_ISA_CALL(isa, exponential_tiles()),
      LUCID_ISA_CALL(isa, trigonometric_tiles()), LUCID_ISA_CALL(isa, activation_tiles())};
  for (const std::span<const TileRow> table : tables) {
    for (const TileRow& row : table) {
      if (row.op == op) return row.by_dtype[static_cast<size_t>(input_dtype)];
    }
  }
  return nullptr;
}

TileFn find_tile(std::string_view op, DType input_dtype) {
  return find_tile(op, input_dtype, active_isa());
}

TileFn find_cast(DType from, DType to, Isa isa) { return LUCID_ISA_CALL(isa, cast_tile(from, to)); }

TileFn find_cast(DType from, DType to) { return find_cast(from, to, active_isa()); }

}  // namespace lucid::cpu
