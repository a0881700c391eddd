// Comparisons, tests, logic and bits.
#include <array>

#include "backends/cpu/simd/loops.h"
#include "backends/cpu/simd/tables.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

struct Equal {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Less {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return a >= b;
  }
};

struct LogicalAnd {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return (a != T{0}) & (b != T{0});
  }
};
struct LogicalOr {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return (a != T{0}) | (b != T{0});
  }
};
struct LogicalXor {
  template <class T>
  LUCID_INLINE bool operator()(T a, T b) const {
    return (a != T{0}) != (b != T{0});
  }
};
struct LogicalNot {
  template <class T>
  LUCID_INLINE bool operator()(T x) const {
    return x == T{0};
  }
};

struct IsNan {
  template <class T>
  LUCID_INLINE bool operator()(T x) const {
    return x != x;
  }
};
struct IsInf {
  template <class T>
  LUCID_INLINE bool operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return absolute(x) == static_cast<T>(kInfinity);
    else
      return false;
  }
};
struct IsFinite {
  template <class T>
  LUCID_INLINE bool operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return absolute(x) < static_cast<T>(kInfinity);
    else
      return true;
  }
};

struct BitwiseAnd {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitwiseOr {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitwiseXor {
  template <class T>
  LUCID_INLINE T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};
struct BitwiseNot {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    if constexpr (std::is_same_v<T, bool>)
      return !x;
    else
      return static_cast<T>(~x);
  }
};

constexpr std::array kRows = {
    predicate_row<Equal, 2>("eq"),
    predicate_row<NotEqual, 2>("ne"),
    predicate_row<Less, 2>("lt"),
    predicate_row<LessEqual, 2>("le"),
    predicate_row<Greater, 2>("gt"),
    predicate_row<GreaterEqual, 2>("ge"),
    predicate_row<LogicalAnd, 2>("logical_and"),
    predicate_row<LogicalOr, 2>("logical_or"),
    predicate_row<LogicalXor, 2>("logical_xor"),
    predicate_row<LogicalNot, 1>("logical_not"),
    predicate_row<IsNan, 1>("isnan"),
    predicate_row<IsInf, 1>("isinf"),
    predicate_row<IsFinite, 1>("isfinite"),
    integral_row<BitwiseAnd, 2>("bitwise_and"),
    integral_row<BitwiseOr, 2>("bitwise_or"),
    integral_row<BitwiseXor, 2>("bitwise_xor"),
    integral_row<BitwiseNot, 1>("bitwise_not"),
};

}  // namespace

std::span<const TileRow> comparison_tiles() { return kRows; }

}  // namespace lucid::cpu::LUCID_ISA
