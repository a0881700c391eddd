// Convolutions and pooling against their definitions over a sweep of windows, and gradients by the
// identity <f(x), g> = <x, f'(g)> of linear maps.
#include <random>

#include "running.h"

using selftest::Data;
using selftest::floats;
using selftest::is_close;
using selftest::numbers;
using selftest::run;
using selftest::values_of;

namespace {

using Shape = std::vector<int64_t>;
using Tensors = NSArray<MPSGraphTensor*>*;

MPSGraphTensor* at(Tensors tensors, NSUInteger index) { return [tensors objectAtIndex:index]; }

int64_t count_of(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

// Small integers: products and sums of them are exact in float32.
Data random_data(const Shape& shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(static_cast<size_t>(count_of(shape)));
  for (float& value : values) value = static_cast<float>(static_cast<int>(generator() % 9) - 4);
  return floats(shape, values);
}

double dot(const Data& lhs, const Data& rhs) {
  const std::vector<float> a = values_of<float>(lhs);
  const std::vector<float> b = values_of<float>(rhs);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

/// A 2-D convolution in NCHW and OIHW.
struct Case {
  int64_t batch, channels, height, width, filters, kernel_y, kernel_x;
  int64_t stride_y, stride_x, dilation_y, dilation_x, top, bottom, left, right, groups;

  int64_t out_y() const {
    return (height + top + bottom - (kernel_y - 1) * dilation_y - 1) / stride_y + 1;
  }
  int64_t out_x() const {
    return (width + left + right - (kernel_x - 1) * dilation_x - 1) / stride_x + 1;
  }
  Shape source() const { return {batch, channels, height, width}; }
  Shape weights() const { return {filters, channels / groups, kernel_y, kernel_x}; }
  Shape result() const { return {batch, filters, out_y(), out_x()}; }
};

const Case kCases[] = {
    {1, 1, 4, 5, 1, 2, 3, 1, 1, 1, 1, 0, 0, 0, 0, 1},
    {2, 3, 5, 6, 4, 3, 2, 2, 1, 1, 2, 1, 0, 0, 2, 1},
    {1, 4, 6, 5, 6, 2, 2, 1, 3, 2, 1, 2, 1, 1, 0, 2},
    {3, 4, 3, 3, 8, 3, 3, 1, 2, 1, 1, 1, 1, 1, 1, 4},
    {2, 2, 1, 9, 2, 1, 4, 1, 2, 1, 2, 0, 0, 3, 3, 2},
};

// y[n, o, i, j] = sum over c, u, v of x[n, c, i s + u d - p, ...] w[o, c, u, v].
std::vector<float> convolved(const Case& c, const Data& source, const Data& weights) {
  const std::vector<float> x = values_of<float>(source);
  const std::vector<float> w = values_of<float>(weights);
  const int64_t per_group = c.channels / c.groups;
  std::vector<float> y;
  for (int64_t n = 0; n < c.batch; ++n) {
    for (int64_t o = 0; o < c.filters; ++o) {
      for (int64_t i = 0; i < c.out_y() * c.out_x(); ++i) {
        float sum = 0;
        for (int64_t k = 0; k < per_group * c.kernel_y * c.kernel_x; ++k) {
          const int64_t channel = k / (c.kernel_y * c.kernel_x);
          const int64_t row =
              i / c.out_x() * c.stride_y + k / c.kernel_x % c.kernel_y * c.dilation_y - c.top;
          const int64_t column =
              i % c.out_x() * c.stride_x + k % c.kernel_x * c.dilation_x - c.left;
          if (row < 0 || row >= c.height || column < 0 || column >= c.width) continue;
          const int64_t from = o / (c.filters / c.groups) * per_group + channel;
          const int64_t x_at = ((n * c.channels + from) * c.height + row) * c.width + column;
          sum += x[static_cast<size_t>(x_at)] *
                 w[static_cast<size_t>(o * per_group * c.kernel_y * c.kernel_x + k)];
        }
        y.push_back(sum);
      }
    }
  }
  return y;
}

MPSGraphConvolution2DOpDescriptor* descriptor_of(const Case& c) {
  const auto size = [](int64_t value) { return static_cast<NSUInteger>(value); };
  return
      [MPSGraphConvolution2DOpDescriptor descriptorWithStrideInX:size(c.stride_x)
                                                       strideInY:size(c.stride_y)
                                                 dilationRateInX:size(c.dilation_x)
                                                 dilationRateInY:size(c.dilation_y)
                                                          groups:size(c.groups)
                                                     paddingLeft:size(c.left)
                                                    paddingRight:size(c.right)
                                                      paddingTop:size(c.top)
                                                   paddingBottom:size(c.bottom)
                                                    paddingStyle:MPSGraphPaddingStyleExplicit
                                                      dataLayout:MPSGraphTensorNamedDataLayoutNCHW
                                                   weightsLayout:MPSGraphTensorNamedDataLayoutOIHW];
}

void test_convolutions() {
  for (const Case& c : kCases) {
    const Data x = random_data(c.source(), 1);
    const Data w = random_data(c.weights(), 2);
    const Data g = random_data(c.result(), 3);
    const auto results = run({x, w, g}, ^(MPSGraph* graph, Tensors in) {
      MPSGraphConvolution2DOpDescriptor* const d = descriptor_of(c);
      return @[
        [graph convolution2DWithSourceTensor:at(in, 0)
                               weightsTensor:at(in, 1)
                                  descriptor:d
                                        name:nil],
        [graph convolution2DDataGradientWithIncomingGradientTensor:at(in, 2)
                                                     weightsTensor:at(in, 1)
                                                       outputShape:numbers(c.source())
                                      forwardConvolutionDescriptor:d
                                                              name:nil],
        [graph convolution2DWeightsGradientWithIncomingGradientTensor:at(in, 2)
                                                         sourceTensor:at(in, 0)
                                                          outputShape:numbers(c.weights())
                                         forwardConvolutionDescriptor:d
                                                                 name:nil]
      ];
    });
    CHECK(results[0].shape == c.result());
    CHECK(is_close(results[0], convolved(c, x, w)));
    const double product = dot(results[0], g);
    CHECK(product != 0);
    CHECK(dot(x, results[1]) == product);
    CHECK(dot(w, results[2]) == product);
  }
}

// The same numbers with the channels last.
void test_layouts() {
  for (const Case& c : kCases) {
    const Data x = random_data(c.source(), 1);
    const Data w = random_data(c.weights(), 2);
    const auto results = run({x, w}, ^(MPSGraph* graph, Tensors in) {
      MPSGraphConvolution2DOpDescriptor* const d = descriptor_of(c);
      [d setDataLayout:MPSGraphTensorNamedDataLayoutNHWC];
      [d setWeightsLayout:MPSGraphTensorNamedDataLayoutHWIO];
      MPSGraphTensor* const source = [graph transposeTensor:at(in, 0)
                                                permutation:@[ @0, @2, @3, @1 ]
                                                       name:nil];
      MPSGraphTensor* const weights = [graph transposeTensor:at(in, 1)
                                                 permutation:@[ @2, @3, @1, @0 ]
                                                        name:nil];
      MPSGraphTensor* const y = [graph convolution2DWithSourceTensor:source
                                                       weightsTensor:weights
                                                          descriptor:d
                                                                name:nil];
      return @[ [graph transposeTensor:y permutation:@[ @0, @3, @1, @2 ] name:nil] ];
    });
    CHECK(is_close(results[0], convolved(c, x, w)));
  }
}

// TensorFlow's SAME gives ceil(length / stride) results, the odd pad at the end.
void test_same_padding() {
  const Data x = floats({1, 1, 1, 4}, {1, 2, 3, 4});
  const Data w = floats({1, 1, 1, 2}, {1, 10});
  const auto results = run({x, w}, ^(MPSGraph* graph, Tensors in) {
    MPSGraphConvolution2DOpDescriptor* const d = [MPSGraphConvolution2DOpDescriptor
        descriptorWithStrideInX:1
                      strideInY:1
                dilationRateInX:1
                dilationRateInY:1
                         groups:1
                   paddingStyle:MPSGraphPaddingStyleTF_SAME
                     dataLayout:MPSGraphTensorNamedDataLayoutNCHW
                  weightsLayout:MPSGraphTensorNamedDataLayoutOIHW];
    MPSGraphTensor* const same = [graph convolution2DWithSourceTensor:at(in, 0)
                                                        weightsTensor:at(in, 1)
                                                           descriptor:d
                                                                 name:nil];
    [d setPaddingStyle:MPSGraphPaddingStyleTF_VALID];
    [d setPaddingLeft:7];  // not used by this style
    MPSGraphTensor* const valid = [graph convolution2DWithSourceTensor:at(in, 0)
                                                         weightsTensor:at(in, 1)
                                                            descriptor:d
                                                                  name:nil];
    return @[ same, valid ];
  });
  CHECK(is_close(results[0], {21, 32, 43, 4}));
  CHECK(is_close(results[1], {21, 32, 43}));
}

void test_volumes() {
  const Shape source = {2, 3, 4, 3, 2};   // NDHWC
  const Shape weights = {4, 2, 2, 2, 3};  // OIDHW
  const Shape result = {2, 2, 4, 2, 4};
  const Data x = random_data(source, 1);
  const Data w = random_data(weights, 2);
  const Data g = random_data(result, 3);
  const auto results = run({x, w, g}, ^(MPSGraph* graph, Tensors in) {
    MPSGraphConvolution3DOpDescriptor* const d = [MPSGraphConvolution3DOpDescriptor
        descriptorWithStrideInX:1
                      strideInY:1
                      strideInZ:2
                dilationRateInX:1
                dilationRateInY:1
                dilationRateInZ:1
                         groups:1
                    paddingLeft:0
                   paddingRight:1
                     paddingTop:1
                  paddingBottom:0
                   paddingFront:0
                    paddingBack:1
                   paddingStyle:MPSGraphPaddingStyleExplicit
                     dataLayout:MPSGraphTensorNamedDataLayoutNDHWC
                  weightsLayout:MPSGraphTensorNamedDataLayoutOIDHW];
    return @[
      [graph convolution3DWithSourceTensor:at(in, 0) weightsTensor:at(in, 1) descriptor:d name:nil],
      [graph convolution3DDataGradientWithIncomingGradientTensor:at(in, 2)
                                                   weightsTensor:at(in, 1)
                                                     outputShape:numbers(source)
                                    forwardConvolutionDescriptor:d
                                                            name:nil],
      [graph convolution3DWeightsGradientWithIncomingGradientTensor:at(in, 2)
                                                       sourceTensor:at(in, 0)
                                                        outputShape:numbers(weights)
                                       forwardConvolutionDescriptor:d
                                                               name:nil]
    ];
  });
  CHECK(results[0].shape == result);
  const double product = dot(results[0], g);
  CHECK(product != 0);
  CHECK(dot(x, results[1]) == product);
  CHECK(dot(w, results[2]) == product);
}

MPSGraphPooling4DOpDescriptor* pooling(BOOL ceils, BOOL counts_padding) {
  MPSGraphPooling4DOpDescriptor* const d =
      [MPSGraphPooling4DOpDescriptor descriptorWithKernelSizes:@[ @1, @1, @2, @3 ]
                                                       strides:@[ @1, @1, @2, @2 ]
                                                 dilationRates:@[ @1, @1, @1, @1 ]
                                                 paddingValues:@[ @0, @0, @0, @0, @0, @0, @1, @1 ]
                                                  paddingStyle:MPSGraphPaddingStyleExplicit];
  [d setCeilMode:ceils];
  [d setIncludeZeroPadToAverage:counts_padding];
  return d;
}

void test_pooling_gradients() {
  const Shape source = {2, 1, 5, 6};
  const Data x = random_data(source, 4);
  for (const BOOL ceils : {NO, YES}) {
    for (const BOOL counts_padding : {NO, YES}) {
      const Shape result = {2, 1, ceils ? 3 : 2, ceils ? 4 : 3};
      const Data g = random_data(result, 5);
      const auto results = run({x, g}, ^(MPSGraph* graph, Tensors in) {
        MPSGraphPooling4DOpDescriptor* const d = pooling(ceils, counts_padding);
        [d setReturnIndicesMode:MPSGraphPoolingReturnIndicesGlobalFlatten4D];
        Tensors const best = [graph maxPooling4DReturnIndicesWithSourceTensor:at(in, 0)
                                                                   descriptor:d
                                                                         name:nil];
        MPSGraphTensor* const flat = [graph reshapeTensor:at(in, 0) withShape:@[ @60 ] name:nil];
        MPSGraphTensor* const where = [graph reshapeTensor:at(best, 1) withShape:@[ @-1 ] name:nil];
        return @[
          [graph avgPooling4DWithSourceTensor:at(in, 0) descriptor:d name:nil],
          [graph avgPooling4DGradientWithGradientTensor:at(in, 1)
                                           sourceTensor:at(in, 0)
                                             descriptor:d
                                                   name:nil],
          at(best, 0),
          [graph gatherAlongAxis:0 withUpdatesTensor:flat indicesTensor:where name:nil],
          [graph maxPooling4DGradientWithGradientTensor:at(in, 1)
                                           sourceTensor:at(in, 0)
                                             descriptor:d
                                                   name:nil],
          [graph maxPooling4DGradientWithGradientTensor:at(in, 1)
                                          indicesTensor:at(best, 1)
                                            outputShape:numbers(source)
                                             descriptor:d
                                                   name:nil]
        ];
      });
      CHECK(results[0].shape == result);
      CHECK(std::fabs(dot(results[0], g) - dot(x, results[1])) < 1e-4);
      CHECK(results[2].bytes == results[3].bytes);  // the value stands where the index says
      CHECK(results[4].bytes == results[5].bytes);
      CHECK(dot(results[2], g) == dot(x, results[4]));
    }
  }
}

// What an average divides by: padding on both ends if it counts, never what ceilMode adds.
void test_average_divisors() {
  const Data ones = floats({1, 1, 1, 3}, {1, 1, 1});
  const auto results = run({ones}, ^(MPSGraph* graph, Tensors in) {
    NSMutableArray<MPSGraphTensor*>* const means = [NSMutableArray array];
    for (const BOOL counts_padding : {NO, YES}) {
      for (NSNumber* after in @[ @1, @0 ]) {
        MPSGraphPooling4DOpDescriptor* const d = [MPSGraphPooling4DOpDescriptor
            descriptorWithKernelSizes:@[ @1, @1, @1, @2 ]
                              strides:@[ @1, @1, @1, @2 ]
                        dilationRates:@[ @1, @1, @1, @1 ]
                        paddingValues:@[ @0, @0, @0, @0, @0, @0, @0, after ]
                         paddingStyle:MPSGraphPaddingStyleExplicit];
        [d setIncludeZeroPadToAverage:counts_padding];
        [d setCeilMode:YES];
        [means addObject:[graph avgPooling4DWithSourceTensor:at(in, 0) descriptor:d name:nil]];
      }
    }
    return (Tensors)means;
  });
  CHECK(is_close(results[0], {1, 1}));
  CHECK(is_close(results[1], {1, 1}));
  CHECK(is_close(results[2], {1, 0.5F}));
  CHECK(is_close(results[3], {1, 1}));
}

}  // namespace

int main() {
  const selftest::Pool pool;
  test_convolutions();
  test_layouts();
  test_same_padding();
  test_volumes();
  test_pooling_gradients();
  test_average_divisors();
  return selftest::failures() == 0 ? 0 : 1;
}
