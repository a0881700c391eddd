// Exponentials, logarithms and hyperbolic functions.
#include "backends/cpu/simd/exponential.h"

#include <array>

#include "backends/cpu/simd/loops.h"
#include "backends/cpu/simd/tables.h"

namespace lucid::cpu::LUCID_ISA {
namespace {

struct Exp {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return exp(x);
  }
};
struct Expm1 {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return expm1(x);
  }
};
struct Log {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return log(x);
  }
};
struct Log1p {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return log1p(x);
  }
};
struct Log2 {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return log2(x);
  }
};
struct Log10 {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return log10(x);
  }
};
struct Sinh {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return sinh(x);
  }
};
struct Cosh {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return cosh(x);
  }
};
struct Tanh {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return tanh(x);
  }
};
struct Asinh {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return asinh(x);
  }
};
struct Acosh {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return acosh(x);
  }
};
struct Atanh {
  template <class T>
  LUCID_INLINE T operator()(T x) const {
    return atanh(x);
  }
};

constexpr std::array kRows = {
    floating_row<Exp, 1>("exp"),     floating_row<Expm1, 1>("expm1"),
    floating_row<Log, 1>("log"),     floating_row<Log1p, 1>("log1p"),
    floating_row<Log2, 1>("log2"),   floating_row<Log10, 1>("log10"),
    floating_row<Sinh, 1>("sinh"),   floating_row<Cosh, 1>("cosh"),
    floating_row<Tanh, 1>("tanh"),   floating_row<Asinh, 1>("asinh"),
    floating_row<Acosh, 1>("acosh"), floating_row<Atanh, 1>("atanh"),
};

}  // namespace

std::span<const TileRow> exponential_tiles() { return kRows; }

}  // namespace lucid::cpu::LUCID_ISA
