#include "recipe.h"

#include <algorithm>
#include <array>

namespace metalhost {
namespace {

template <auto... F>
constexpr std::array<MakeAgain, sizeof...(F)> all_of{&Recipe<F>::again...};

constexpr auto kAll =
    all_of<unary, binary, select, clamp, cast, reinterpret_cast_op, leaky_relu, relu_grad,
           sigmoid_grad, leaky_relu_grad, constant, constant_data, coordinate, shape_of, reduce,
           arg_reduce, variance, variance_around, softmax, softmax_grad, cumulative, normalization,
           reshape, transpose, slice, slice_length, slice_update, concat, stack, split, pad, tile,
           reverse, broadcast, flatten, squeeze, squeeze_all, expand_dims, band_part, gather,
           gather_nd, gather_along, scatter, scatter_nd, scatter_along, one_hot, sort, arg_sort,
           top_k, matmul, convolve, convolve_data_grad, convolve_weights_grad, max_pool,
           max_pool_indices, max_pool_grad, max_pool_grad_indices, avg_pool, avg_pool_grad>;

}  // namespace

uint32_t index_of(MakeAgain again) {
  const auto found = std::ranges::find(kAll, again);
  if (again == nullptr || found == kAll.end()) {
    fail_assertion("metalhost", "an operation that no package can hold: list it in recipe.cpp");
  }
  return static_cast<uint32_t>(found - kAll.begin());
}

MakeAgain make_again_at(uint32_t index) {
  if (index >= kAll.size()) fail_assertion("MPSGraphPackage.mm", "Error: unknown operation");
  return kAll[index];
}

}  // namespace metalhost
