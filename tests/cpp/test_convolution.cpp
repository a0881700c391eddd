// Convolutions and their gradients against plain loops, and their bits over threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "backends/cpu/engine/convolution.h"
#include "backends/cpu/engine/convolution_cost.h"
#include "backends/cpu/engine/lane_convolution.h"
#include "backends/cpu/engine/window_convolution.h"
#include "backends/cpu/threads/team.h"
#include "support/errors.h"
#include "testing.h"

namespace lucid::cpu {
namespace {

template <class T>
std::vector<T> numbers(int64_t count, uint32_t seed) {
  std::vector<T> result;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    result.push_back(static_cast<T>(seed >> 8) / static_cast<T>(1 << 23) - T{1});
  }
  return result;
}

struct AlignedBytes {
  explicit AlignedBytes(size_t size)
      : data(size == 0 ? nullptr : ::operator new(size, std::align_val_t(64))) {}
  ~AlignedBytes() { ::operator delete(data, std::align_val_t(64)); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  void* data;
};

/// An axis whose output follows from the rest.
ConvolutionAxis axis(int64_t input, int64_t kernel, int64_t stride, int64_t low, int64_t high,
                     int64_t dilation) {
  const int64_t places = input + low + high - dilation * (kernel - 1) - 1;
  return {input, kernel, places / stride + 1, stride, low, dilation};
}

struct Sizes {
  int64_t x;
  int64_t w;
  int64_t y;
};

Sizes sizes(const ConvolutionSpec& spec) {
  return {spec.batch * spec.channels * spec.input_size(),
          spec.filters * spec.group_channels() * spec.kernel_size(),
          spec.batch * spec.filters * spec.output_size()};
}

/// Place along an axis of the element under a tap, or -1 in the padding.
int64_t tapped(const ConvolutionAxis& of, int64_t output, int64_t tap) {
  const int64_t at = output * of.stride + tap * of.dilation - of.padding;
  return at >= 0 && at < of.input ? at : -1;
}

/// Calls body(index in x, index in w, index in y) for every product of the convolution.
template <class Body>
void for_each_product(const ConvolutionSpec& spec, Body body) {
  const auto& a = spec.axes;
  for (int64_t y = 0; y < sizes(spec).y; ++y) {
    const int64_t ow = y % a[2].output;
    const int64_t oh = y / a[2].output % a[1].output;
    const int64_t od = y / a[2].output / a[1].output % a[0].output;
    const int64_t filter = y / spec.output_size() % spec.filters;
    const int64_t image = y / spec.output_size() / spec.filters;
    const int64_t group = filter / spec.group_filters();
    for (int64_t k = 0; k < spec.kernel_size(); ++k) {
      const int64_t w = tapped(a[2], ow, k % a[2].kernel);
      const int64_t h = tapped(a[1], oh, k / a[2].kernel % a[1].kernel);
      const int64_t d = tapped(a[0], od, k / a[2].kernel / a[1].kernel);
      if (w < 0 || h < 0 || d < 0) continue;
      const int64_t element = (d * a[1].input + h) * a[2].input + w;
      for (int64_t c = 0; c < spec.group_channels(); ++c) {
        const int64_t plane = image * spec.channels + group * spec.group_channels() + c;
        const int64_t filter_plane = filter * spec.group_channels() + c;
        body(static_cast<size_t>(plane * spec.input_size() + element),
             static_cast<size_t>(filter_plane * spec.kernel_size() + k), static_cast<size_t>(y));
      }
    }
  }
}

enum class Pass { kForward, kInputGrad, kWeightGrad };

template <class T>
std::vector<T> run(const Convolution& convolution, const std::vector<T>& first,
                   const std::vector<T>& second, const T* bias, int64_t size) {
  const AlignedBytes scratch(convolution.scratch_bytes());
  std::vector<T> result(static_cast<size_t>(size), T{-7});
  convolution.run(first.data(), second.data(), bias, result.data(), scratch.data);
  return result;
}

template <class T>
std::vector<T> run(const ConvolutionSpec& spec, Pass pass, const std::vector<T>& first,
                   const std::vector<T>& second, const T* bias, int64_t size) {
  const auto convolution = pass == Pass::kForward     ? make_convolution(spec)
                           : pass == Pass::kInputGrad ? make_convolution_input_grad(spec)
                                                      : make_convolution_weight_grad(spec);
  return run(*convolution, first, second, bias, size);
}

template <class T>
void check_close(const std::vector<T>& found, const std::vector<double>& expected, int64_t terms,
                 const std::string& what) {
  CHECK_EQ(found.size(), expected.size());
  // k terms of magnitude 1/3: see test_gemm.cpp.
  const double bound = std::numeric_limits<T>::epsilon() * static_cast<double>(terms + 4);
  double worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double error = std::abs(static_cast<double>(found[i]) - expected[i]);
    worst = std::isnan(error) ? error : std::max(worst, error / bound);
    if (std::isnan(worst)) break;
  }
  if (!(worst <= 1.0)) {
    testing::fail(__FILE__, __LINE__, what + " is off by " + std::to_string(worst) + " bounds");
  }
}

template <class T>
void check_spec(ConvolutionSpec spec, const std::string& what) {
  spec.dtype = sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;
  const Sizes size = sizes(spec);
  const auto x = numbers<T>(size.x, 1);
  const auto w = numbers<T>(size.w, 2);
  const auto dy = numbers<T>(size.y, 3);
  const auto bias = numbers<T>(spec.filters, 4);
  std::vector<double> y_expected;
  for (int64_t i = 0; i < size.y; ++i) {
    y_expected.push_back(
        static_cast<double>(bias[static_cast<size_t>(i / spec.output_size() % spec.filters)]));
  }
  std::vector<double> dx_expected(static_cast<size_t>(size.x), 0.0);
  std::vector<double> dw_expected(static_cast<size_t>(size.w), 0.0);
  for_each_product(spec, [&](size_t in_x, size_t in_w, size_t in_y) {
    y_expected[in_y] += static_cast<double>(x[in_x]) * static_cast<double>(w[in_w]);
    dx_expected[in_x] += static_cast<double>(dy[in_y]) * static_cast<double>(w[in_w]);
    dw_expected[in_w] += static_cast<double>(dy[in_y]) * static_cast<double>(x[in_x]);
  });
  const int64_t taps = spec.kernel_size();
  check_close(run(spec, Pass::kForward, x, w, bias.data(), size.y), y_expected,
              spec.group_channels() * taps, what + " forward");
  check_close(run<T>(spec, Pass::kInputGrad, dy, w, nullptr, size.x), dx_expected,
              spec.group_filters() * taps, what + " input gradient");
  check_close(run<T>(spec, Pass::kWeightGrad, dy, x, nullptr, size.w), dw_expected,
              spec.batch * spec.output_size(), what + " weight gradient");
}

template <class T>
bool same_bits(const std::vector<T>& lhs, const std::vector<T>& rhs) {
  return lhs.size() == rhs.size() &&
         (lhs.empty() || std::memcmp(lhs.data(), rhs.data(), lhs.size() * sizeof(T)) == 0);
}

struct NamedSpec {
  const char* name;
  ConvolutionSpec spec;
};

std::vector<NamedSpec> specs() {
  const ConvolutionAxis one = axis(1, 1, 1, 0, 0, 1);
  const ConvolutionAxis three = axis(9, 3, 1, 1, 1, 1);
  const ConvolutionAxis strided = axis(10, 3, 2, 1, 1, 1);
  return {
      {"one element", {1, 1, 1, 1, {one, one, one}}},
      {"lenet 1", {4, 1, 6, 1, {one, axis(28, 5, 1, 2, 2, 1), axis(28, 5, 1, 2, 2, 1)}}},
      {"lenet 2", {4, 6, 16, 1, {one, axis(14, 5, 1, 0, 0, 1), axis(14, 5, 1, 0, 0, 1)}}},
      {"3x3", {3, 5, 7, 1, {one, three, axis(8, 3, 1, 1, 1, 1)}}},
      {"stride 2", {2, 4, 5, 1, {one, strided, axis(11, 3, 2, 1, 1, 1)}}},
      {"stride 3, kernel 2", {2, 3, 4, 1, {one, axis(11, 2, 3, 0, 0, 1), axis(13, 2, 3, 0, 1, 1)}}},
      {"one-sided padding", {2, 3, 4, 1, {one, axis(6, 3, 1, 2, 0, 1), axis(7, 4, 2, 0, 3, 1)}}},
      {"padding beyond the kernel", {2, 3, 4, 1, {one, axis(5, 2, 1, 4, 3, 1), three}}},
      {"dilation", {2, 3, 4, 1, {one, axis(12, 3, 1, 2, 2, 2), axis(13, 3, 2, 1, 0, 3)}}},
      {"groups", {2, 6, 9, 3, {one, three, strided}}},
      {"depthwise", {2, 8, 8, 8, {one, three, three}}},
      {"pointwise", {3, 5, 6, 1, {one, axis(6, 1, 1, 0, 0, 1), axis(7, 1, 1, 0, 0, 1)}}},
      {"pointwise, stride 2", {3, 5, 6, 1, {one, axis(6, 1, 2, 0, 0, 1), axis(7, 1, 2, 0, 0, 1)}}},
      {"one axis", {2, 3, 4, 1, {one, one, axis(40, 5, 2, 2, 2, 1)}}},
      {"three axes", {2, 3, 4, 1, {axis(5, 3, 2, 1, 0, 1), axis(6, 2, 1, 1, 1, 2), three}}},
      {"wide", {1, 2, 3, 1, {one, axis(3, 1, 1, 0, 0, 1), axis(70, 3, 1, 1, 1, 1)}}},
      {"strips", {1, 64, 16, 1, {one, axis(45, 3, 1, 1, 1, 1), axis(47, 3, 1, 1, 1, 1)}}},
      {"strips, stride 2", {1, 64, 5, 1, {one, axis(67, 3, 2, 1, 1, 1), axis(47, 3, 1, 1, 1, 1)}}},
      {"many channels", {2, 70, 30, 1, {one, axis(4, 3, 1, 1, 1, 1), axis(4, 3, 1, 1, 1, 1)}}},
      {"tiles", {3, 20, 35, 1, {one, axis(13, 3, 1, 1, 1, 1), axis(19, 3, 1, 1, 1, 1)}}},
      {"tiles in strips", {1, 16, 17, 1, {one, axis(70, 3, 1, 2, 2, 1), axis(37, 3, 1, 0, 1, 1)}}},
      {"tiles of images", {7, 50, 60, 1, {one, axis(10, 3, 1, 1, 1, 1), axis(12, 3, 1, 1, 2, 1)}}},
      {"two rows of tiles a register",
       {2, 16, 18, 1, {one, axis(13, 3, 1, 1, 1, 1), axis(15, 3, 1, 1, 1, 1)}}},
      {"four rows of tiles a register",
       {3, 17, 16, 1, {one, axis(19, 3, 1, 2, 2, 1), axis(9, 3, 1, 0, 0, 1)}}},
      {"rows of two tiles", {2, 16, 16, 1, {one, axis(31, 3, 1, 1, 1, 1), axis(4, 3, 1, 1, 1, 1)}}},
      {"many images", {37, 2, 3, 1, {one, axis(4, 3, 1, 1, 1, 1), axis(4, 3, 1, 1, 1, 1)}}},
  };
}

TEST(convolutions_are_right) {
  for (const NamedSpec& each : specs()) {
    check_spec<float>(each.spec, each.name);
    check_spec<double>(each.spec, each.name);
  }
}

TEST(threads_do_not_change_bits) {
  const int before = num_threads();
  for (const NamedSpec& each : specs()) {
    const Sizes size = sizes(each.spec);
    const auto x = numbers<float>(size.x, 1);
    const auto w = numbers<float>(size.w, 2);
    const auto dy = numbers<float>(size.y, 3);
    std::vector<std::vector<float>> alone;
    for (int threads = 1; threads <= 4; ++threads) {
      set_num_threads(threads);
      const std::vector<std::vector<float>> results = {
          run<float>(each.spec, Pass::kForward, x, w, nullptr, size.y),
          run<float>(each.spec, Pass::kInputGrad, dy, w, nullptr, size.x),
          run<float>(each.spec, Pass::kWeightGrad, dy, x, nullptr, size.w)};
      if (threads == 1) alone = results;
      for (size_t i = 0; i < results.size(); ++i) {
        if (same_bits(results[i], alone[i])) continue;
        testing::fail(__FILE__, __LINE__,
                      std::string(each.name) + ", pass " + std::to_string(i) + " differs with " +
                          std::to_string(threads) + " threads");
      }
    }
  }
  set_num_threads(before);
}

TEST(an_image_has_the_same_bits_in_every_batch) {
  for (const NamedSpec& each : specs()) {
    ConvolutionSpec alone = each.spec;
    alone.batch = 1;
    const Sizes size = sizes(each.spec);
    const auto x = numbers<float>(size.x, 1);
    const auto w = numbers<float>(size.w, 2);
    auto whole = run<float>(each.spec, Pass::kForward, x, w, nullptr, size.y);
    whole.resize(static_cast<size_t>(sizes(alone).y));
    CHECK(whole == run<float>(alone, Pass::kForward, x, w, nullptr, sizes(alone).y));
  }
}

TEST(an_infinite_input_reaches_the_outputs_of_its_windows_alone) {
  const std::vector<NamedSpec> all = specs();
  const auto tiles = std::find_if(all.begin(), all.end(), [](const NamedSpec& each) {
    return std::string(each.name) == "tiles";
  });
  CHECK(tiles != all.end());
  const ConvolutionSpec& spec = tiles->spec;
  const Sizes size = sizes(spec);
  auto x = numbers<float>(size.x, 1);
  const auto w = numbers<float>(size.w, 2);
  const auto before = run<float>(spec, Pass::kForward, x, w, nullptr, size.y);
  x[0] = std::numeric_limits<float>::infinity();
  const auto after = run<float>(spec, Pass::kForward, x, w, nullptr, size.y);
  int64_t wrong = 0;
  for (int64_t i = 0; i < size.y; ++i) {
    const int64_t row = i % spec.output_size() / spec.axes[2].output;
    const int64_t column = i % spec.axes[2].output;
    const bool reached = i < spec.filters * spec.output_size() && row < 2 && column < 2;
    const auto at = static_cast<size_t>(i);
    wrong += reached ? std::isfinite(after[at]) : before[at] != after[at];
  }
  CHECK_EQ(wrong, 0);
}

/// Both forms of a spec's two passes give the same bits, with and without bias.
template <class T>
void check_forms(ConvolutionSpec spec, const std::string& what) {
  spec.dtype = sizeof(T) == 8 ? DType::kFloat64 : DType::kFloat32;
  const Sizes size = sizes(spec);
  const auto x = numbers<T>(size.x, 1);
  const auto w = numbers<T>(size.w, 2);
  const auto dy = numbers<T>(size.y, 3);
  const auto bias = numbers<T>(spec.filters, 4);
  const auto check = [&](const std::vector<T>& lanes, const std::vector<T>& window) {
    if (!same_bits(lanes, window)) testing::fail(__FILE__, __LINE__, what + ": forms differ");
  };
  const auto lanes = make_lane_convolution(spec);
  const auto window = make_window_convolution(spec);
  for (const T* b : {bias.data(), static_cast<const T*>(nullptr)}) {
    check(run(*lanes, x, w, b, size.y), run(*window, x, w, b, size.y));
  }
  check(run<T>(*make_lane_input_grad(spec), dy, w, nullptr, size.x),
        run<T>(*make_window_input_grad(spec), dy, w, nullptr, size.x));
}

TEST(both_forms_have_the_same_bits) {
  std::vector<NamedSpec> all = specs();
  for (NamedSpec& each : all) each.spec.batch = std::max<int64_t>(each.spec.batch, 19);
  const ConvolutionAxis one = axis(1, 1, 1, 0, 0, 1);
  const ConvolutionAxis three = axis(21, 3, 1, 1, 1, 1);
  const ConvolutionAxis strided = axis(21, 3, 2, 1, 1, 1);
  all.push_back({"strips of lanes", {17, 40, 26, 1, {one, three, three}}});
  all.push_back({"strips of lanes, stride 2", {33, 40, 26, 1, {one, strided, strided}}});
  for (const NamedSpec& each : all) {
    check_forms<float>(each.spec, each.name);
    check_forms<double>(each.spec, each.name);
  }
}

TEST(weight_gradients_of_lanes_are_right_and_keep_their_bits) {
  const int before = num_threads();
  for (NamedSpec each : specs()) {
    for (const int64_t batch : {each.spec.batch, int64_t{19}}) {
      each.spec.batch = batch;
      const Sizes size = sizes(each.spec);
      const auto x = numbers<float>(size.x, 1);
      const auto dy = numbers<float>(size.y, 3);
      std::vector<double> expected(static_cast<size_t>(size.w), 0.0);
      for_each_product(each.spec, [&](size_t in_x, size_t in_w, size_t in_y) {
        expected[in_w] += static_cast<double>(dy[in_y]) * static_cast<double>(x[in_x]);
      });
      std::vector<float> alone;
      for (int threads = 1; threads <= 4; ++threads) {
        set_num_threads(threads);
        const auto found = run<float>(*make_lane_weight_grad(each.spec), dy, x, nullptr, size.w);
        if (threads == 1) alone = found;
        if (!same_bits(found, alone)) testing::fail(__FILE__, __LINE__, each.name);
      }
      check_close(alone, expected, batch * each.spec.output_size(), each.name);
    }
  }
  set_num_threads(before);
}

TEST(the_form_follows_from_the_shape) {
  const ConvolutionAxis one = axis(1, 1, 1, 0, 0, 1);
  const ConvolutionAxis narrow = axis(10, 3, 1, 1, 1, 1);
  const ConvolutionAxis wide = axis(64, 3, 1, 1, 1, 1);
  CHECK(lanes_beat_window({64, 16, 16, 1, {one, narrow, narrow}}));
  CHECK(lanes_beat_window_input_grad({64, 16, 16, 1, {one, narrow, narrow}}));
  CHECK(lanes_beat_window_weight_grad({64, 1, 6, 1, {one, narrow, narrow}}));
  CHECK(!lanes_beat_window_weight_grad({1, 1, 6, 1, {one, narrow, narrow}}));
  CHECK(!lanes_beat_window_weight_grad({0, 1, 6, 1, {one, narrow, narrow}}));
  CHECK(!lanes_beat_window({1, 16, 16, 1, {one, narrow, narrow}}));
  CHECK(!lanes_beat_window({64, 16, 16, 1, {one, wide, wide}}));
  CHECK(!lanes_beat_window({0, 16, 16, 1, {one, narrow, narrow}}));
}

TEST(an_empty_batch_has_a_zero_weight_gradient) {
  ConvolutionSpec spec = specs()[3].spec;
  spec.batch = 0;
  const Sizes size = sizes(spec);
  const std::vector<float> none;
  const auto w = numbers<float>(size.w, 2);
  CHECK(run<float>(spec, Pass::kForward, none, w, nullptr, 0).empty());
  CHECK(run<float>(spec, Pass::kInputGrad, none, w, nullptr, 0).empty());
  CHECK(run<float>(spec, Pass::kWeightGrad, none, none, nullptr, size.w) ==
        std::vector<float>(static_cast<size_t>(size.w), 0.0f));
}

TEST(other_dtypes_are_refused) {
  ConvolutionSpec spec = specs()[0].spec;
  spec.dtype = DType::kFloat16;
  CHECK_THROWS(make_convolution(spec), Error, "convolution: no kernel for dtype float16");
}

}  // namespace
}  // namespace lucid::cpu
