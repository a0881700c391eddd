// Values of every family of operations, worked out by hand or from the definition.
#include "running.h"

using selftest::bools;
using selftest::Data;
using selftest::data_of;
using selftest::floats;
using selftest::ints;
using selftest::is_close;
using selftest::numbers;
using selftest::run;
using selftest::values_of;

namespace {

using Ints = std::vector<int32_t>;
using Bytes = std::vector<uint8_t>;
using Shape = std::vector<int64_t>;
using Tensors = NSArray<MPSGraphTensor*>*;

MPSGraphTensor* at(Tensors tensors, NSUInteger index) { return [tensors objectAtIndex:index]; }

void test_elementwise() {
  const Data x = floats({5}, {-1.5F, -0.0F, 0.5F, 2.5F, NAN});
  const auto results = run({x}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const t = at(in, 0);
    return @[
      [g squareWithTensor:t name:nil], [g rintWithTensor:t name:nil],
      [g roundWithTensor:t name:nil], [g truncateWithTensor:t name:nil],
      [g reLUWithTensor:t name:nil], [g isNaNWithTensor:t name:nil], [g signWithTensor:t name:nil],
      [g exponentWithTensor:t name:nil], [g signbitWithTensor:t name:nil],
      [g floorWithTensor:t name:nil]
    ];
  });
  CHECK(is_close(results[0], {2.25F, 0, 0.25F, 6.25F, NAN}));
  CHECK(is_close(results[1], {-2, 0, 0, 2, NAN}));  // half to even
  CHECK(is_close(results[2], {-2, 0, 1, 3, NAN}));  // half away from zero
  CHECK(is_close(results[3], {-1, 0, 0, 2, NAN}));
  CHECK(is_close(results[4], {0, 0, 0.5F, 2.5F, 0}));
  CHECK(values_of<uint8_t>(results[5]) == (Bytes{0, 0, 0, 0, 1}));
  CHECK(results[5].type == MPSDataTypeBool);
  CHECK(is_close(results[6], {-1, 0, 1, 1, 0}));
  CHECK(is_close(results[7], {0.22313016F, 1, 1.6487213F, 12.182494F, NAN}, 1e-6F));
  CHECK(values_of<uint8_t>(results[8])[1] == 1);
  CHECK(is_close(results[9], {-2, 0, 0, 2, NAN}));
}

void test_binary() {
  const Data x = floats({2, 1}, {-7, 5});
  const Data y = floats({3}, {3, 0, NAN});
  const auto results = run({x, y}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const a = at(in, 0);
    MPSGraphTensor* const b = at(in, 1);
    return @[
      [g additionWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g moduloWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g floorModuloWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g divisionNoNaNWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g maximumWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g maximumWithNaNPropagationWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g lessThanWithPrimaryTensor:a secondaryTensor:b name:nil]
    ];
  });
  CHECK(results[0].shape == (Shape{2, 3}));
  CHECK(is_close(results[0], {-4, -7, NAN, 8, 5, NAN}));
  CHECK(is_close(results[1], {-1, NAN, NAN, 2, NAN, NAN}));
  CHECK(is_close(results[2], {2, 0, NAN, 2, 0, NAN}));
  CHECK(is_close(results[3], {-7.0F / 3, 0, NAN, 5.0F / 3, 0, NAN}));
  CHECK(is_close(results[4], {3, 0, -7, 5, 5, 5}));
  CHECK(is_close(results[5], {3, 0, NAN, 5, 5, NAN}));
  CHECK(values_of<uint8_t>(results[6]) == (Bytes{1, 1, 0, 0, 0, 0}));
}

void test_integers() {
  const Data x = ints({4}, {-7, 7, INT32_MAX, 1});
  const Data y = ints({4}, {2, -2, 1, 33});
  const auto results = run({x, y}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const a = at(in, 0);
    MPSGraphTensor* const b = at(in, 1);
    return @[
      [g divisionWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g moduloWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g floorModuloWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g additionWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g bitwiseLeftShiftWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g bitwiseRightShiftWithPrimaryTensor:a secondaryTensor:b name:nil],
      [g bitwiseNOTWithTensor:a name:nil]
    ];
  });
  CHECK(values_of<int32_t>(results[0]) == (Ints{-3, -3, INT32_MAX, 0}));
  CHECK(values_of<int32_t>(results[1]) == (Ints{-1, 1, 0, 1}));
  CHECK(values_of<int32_t>(results[2]) == (Ints{1, -1, 0, 1}));
  CHECK(values_of<int32_t>(results[3]) == (Ints{-5, 5, INT32_MIN, 34}));
  // Counts are taken modulo 32: -2 is 30, 33 is 1.
  CHECK(values_of<int32_t>(results[4]) == (Ints{-28, int32_t(7U << 30), -2, 2}));
  CHECK(values_of<int32_t>(results[5]) == (Ints{-2, 0, INT32_MAX / 2, 0}));
  CHECK(values_of<int32_t>(results[6]) == (Ints{6, -8, INT32_MIN, -2}));

  const auto logical = run({data_of<uint32_t>(MPSDataTypeUInt32, {1}, {0x80000000U}),
                            data_of<uint32_t>(MPSDataTypeUInt32, {1}, {4})},
                           ^(MPSGraph* g, Tensors in) {
                             return @[ [g bitwiseRightShiftWithPrimaryTensor:at(in, 0)
                                                             secondaryTensor:at(in, 1)
                                                                        name:nil] ];
                           });
  CHECK(values_of<uint32_t>(logical[0]) == std::vector<uint32_t>{0x08000000U});
}

void test_casts() {
  const Data x = floats({6}, {1.9F, -1.9F, 300, 65519, 65520, 0.3F});
  const auto results = run({x}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const t = at(in, 0);
    MPSGraphTensor* const half = [g castTensor:t toType:MPSDataTypeFloat16 name:nil];
    MPSGraphTensor* const bfloat = [g castTensor:t toType:MPSDataTypeBFloat16 name:nil];
    return @[
      [g castTensor:t toType:MPSDataTypeInt32 name:nil],
      [g castTensor:half toType:MPSDataTypeFloat32 name:nil],
      [g castTensor:bfloat toType:MPSDataTypeFloat32 name:nil],
      [g castTensor:t toType:MPSDataTypeBool name:nil],
      [g reinterpretCastTensor:t toType:MPSDataTypeInt64 name:nil], half
    ];
  });
  CHECK(values_of<int32_t>(results[0]) == (Ints{1, -1, 300, 65519, 65520, 0}));
  CHECK(is_close(results[1], {1.900390625F, -1.900390625F, 300, 65504, INFINITY, 0.300048828125F}));
  CHECK(is_close(results[2], {1.8984375F, -1.8984375F, 300, 65536, 65536, 0.30078125F}));
  CHECK(values_of<uint8_t>(results[3]) == (Bytes{1, 1, 1, 1, 1, 1}));
  CHECK(results[4].shape == Shape{3});
  CHECK(values_of<uint16_t>(results[5])[0] == 0x3f9a);
}

// All half floats survive a round trip, and rounding agrees with the compiler's own half type.
void test_half_rounding() {
  std::vector<uint16_t> patterns(1 << 16);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  std::vector<float> values;
  uint32_t bits = 12345;
  for (int i = 0; i < 100000; ++i) {
    bits = bits * 1664525U + 1013904223U;
    float value = 0;
    std::memcpy(&value, &bits, sizeof value);
    values.push_back(i % 2 == 0 ? value : std::ldexp(value, -static_cast<int>(bits >> 27)));
  }
  const auto count = static_cast<int64_t>(values.size());
  const auto results = run(
      {data_of(MPSDataTypeFloat16, {1 << 16}, patterns), floats({count}, values)},
      ^(MPSGraph* g, Tensors in) {
        MPSGraphTensor* const wide = [g castTensor:at(in, 0) toType:MPSDataTypeFloat32 name:nil];
        return @[
          [g castTensor:wide toType:MPSDataTypeFloat16 name:nil], [g castTensor:at(in, 1)
                                                                         toType:MPSDataTypeFloat16
                                                                           name:nil]
        ];
      });
  const std::vector<uint16_t> back = values_of<uint16_t>(results[0]);
  for (size_t i = 0; i < patterns.size(); ++i) {
    const bool is_nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff) != 0;
    if (!is_nan && back[i] != patterns[i]) return CHECK(!"a half float changed");
  }
  const std::vector<uint16_t> rounded = values_of<uint16_t>(results[1]);
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) continue;
    const auto expected = static_cast<_Float16>(values[i]);
    if (std::memcmp(&expected, &rounded[i], sizeof expected) != 0) {
      return CHECK(!"a float was rounded otherwise");
    }
  }
}

void test_select_and_clamp() {
  const auto results = run({bools({2, 1}, {1, 0}), floats({3}, {1, 2, 3}), floats({1}, {9})}, ^(
                               MPSGraph* g, Tensors in) {
    MPSGraphTensor* const low = [g constantWithScalar:1.5 dataType:MPSDataTypeFloat32];
    MPSGraphTensor* const high = [g constantWithScalar:2.5 dataType:MPSDataTypeFloat32];
    return @[
      [g selectWithPredicateTensor:at(in, 0)
               truePredicateTensor:at(in, 1)
              falsePredicateTensor:at(in, 2)
                              name:nil],
      [g clampWithTensor:at(in, 1) minValueTensor:low maxValueTensor:high name:nil]
    ];
  });
  CHECK(results[0].shape == (Shape{2, 3}));
  CHECK(is_close(results[0], {1, 2, 3, 9, 9, 9}));
  CHECK(is_close(results[1], {1.5F, 2, 2.5F}));
}

void test_constants() {
  const auto results = run({floats({1}, {0})}, ^(MPSGraph* g, Tensors in) {
    const int32_t raw[] = {4, 5};
    MPSGraphTensor* const truth = [g constantWithScalar:1 shape:@[ @2 ] dataType:MPSDataTypeBool];
    return @[
      [g constantWithScalar:2.5 shape:@[ @2, @1 ] dataType:MPSDataTypeFloat32],
      [g constantWithData:[NSData dataWithBytes:raw length:sizeof raw]
                    shape:@[ @2 ]
                 dataType:MPSDataTypeInt32],
      truth, [g coordinateAlongAxis:1 withShape:@[ @2, @3 ] name:nil],
      [g shapeOfTensor:[g broadcastTensor:at(in, 0) toShape:@[ @4, @7 ] name:nil] name:nil]
    ];
  });
  CHECK(is_close(results[0], {2.5F, 2.5F}));
  CHECK(values_of<int32_t>(results[1]) == (Ints{4, 5}));
  CHECK(values_of<uint8_t>(results[2]) == (Bytes{255, 255}));  // not 1
  CHECK(values_of<int32_t>(results[3]) == (Ints{0, 1, 2, 0, 1, 2}));
  CHECK(values_of<int32_t>(results[4]) == (Ints{4, 7}));
}

void test_reductions() {
  const Data x = floats({2, 3}, {1, NAN, 3, -4, 5, 5});
  const auto results = run({x, ints({2, 2}, {1, 2, INT32_MAX, 1})}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const t = at(in, 0);
    return @[
      [g reductionSumWithTensor:t axes:@[ @1 ] name:nil],
      [g reductionMaximumWithTensor:t axis:1 name:nil],
      [g reductionMaximumPropagateNaNWithTensor:t axis:1 name:nil],
      [g reductionArgMaximumWithTensor:t axis:1 name:nil],
      [g reductionSumWithTensor:at(in, 1) axes:@[ @1 ] name:nil],
      [g reductionProductWithTensor:at(in, 1) axis:0 name:nil],
      [g reductionSumWithTensor:at(in, 1) axes:nil name:nil]
    ];
  });
  CHECK(results[0].shape == (Shape{2, 1}));
  CHECK(is_close(results[0], {NAN, 6}));
  CHECK(is_close(results[1], {3, 5}));
  CHECK(is_close(results[2], {NAN, 5}));
  CHECK(values_of<int32_t>(results[3])[1] == 1);  // the first of equals
  CHECK(values_of<int32_t>(results[4]) == (Ints{3, INT32_MIN}));
  CHECK(values_of<int32_t>(results[5]) == (Ints{INT32_MAX, 2}));
  CHECK(values_of<int32_t>(results[6]) == Ints{INT32_MIN + 3});
}

void test_statistics() {
  const Data x = floats({2, 4}, {1, 2, 3, 4, 5, 5, 5, 9});
  const auto results = run(
      {x, floats({1, 4}, {1, 1, 2, 2}), floats({1, 4}, {0, 1, 0, 1})}, ^(MPSGraph* g, Tensors in) {
        MPSGraphTensor* const t = at(in, 0);
        MPSGraphTensor* const mean = [g meanOfTensor:t axes:@[ @1 ] name:nil];
        MPSGraphTensor* const spread = [g varianceOfTensor:t axes:@[ @1 ] name:nil];
        return @[
          mean, spread,
          [g normalizationWithTensor:t
                          meanTensor:mean
                      varianceTensor:spread
                         gammaTensor:at(in, 1)
                          betaTensor:at(in, 2)
                             epsilon:0.75F
                                name:nil],
          [g softMaxWithTensor:t axis:-1 name:nil]
        ];
      });
  CHECK(is_close(results[0], {2.5F, 6}));
  CHECK(is_close(results[1], {1.25F, 3}));  // biased
  const float s = std::sqrt(2.0F);
  const float r = std::sqrt(3.75F);
  CHECK(is_close(results[2],
                 {-1.5F / s, 1 - 0.5F / s, 1 / s, 1 + 3 / s, -1 / r, 1 - 1 / r, -2 / r, 1 + 6 / r},
                 1e-6F));
  CHECK(is_close(results[3],
                 {0.0320586F, 0.0871443F, 0.2368828F, 0.6439143F, 0.0173617F, 0.0173617F,
                  0.0173617F, 0.9479150F},
                 1e-6F));
  const auto masked = run({floats({1, 2}, {-INFINITY, -INFINITY})}, ^(MPSGraph* g, Tensors in) {
    return @[ [g softMaxWithTensor:at(in, 0) axis:1 name:nil] ];
  });
  CHECK(is_close(masked[0], {NAN, NAN}));
}

void test_scans_and_order() {
  const Data x = floats({2, 3}, {3, 1, 2, 5, 5, 4});
  const auto results = run({x}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const t = at(in, 0);
    Tensors const best = [g topKWithSourceTensor:t k:2 name:nil];
    return @[
      [g cumulativeSumWithTensor:t axis:1 name:nil],
      [g cumulativeSumWithTensor:t axis:1 exclusive:YES reverse:YES name:nil],
      [g cumulativeMaximumWithTensor:t axis:0 name:nil], [g sortWithTensor:t axis:1 name:nil],
      [g argSortWithTensor:t axis:1 descending:YES name:nil], at(best, 0), at(best, 1)
    ];
  });
  CHECK(is_close(results[0], {3, 4, 6, 5, 10, 14}));
  CHECK(is_close(results[1], {3, 2, 0, 9, 4, 0}));
  CHECK(is_close(results[2], {3, 1, 2, 5, 5, 4}));
  CHECK(is_close(results[3], {1, 2, 3, 4, 5, 5}));
  CHECK(values_of<int32_t>(results[4]) == (Ints{0, 2, 1, 1, 0, 2}));  // equals: last one first
  CHECK(is_close(results[5], {3, 2, 5, 5}));
  CHECK(values_of<int32_t>(results[6]) == (Ints{0, 2, 1, 0}));
}

void test_matmul() {
  const Data a = floats({2, 1, 2}, {1, 2, 3, 4});
  const Data b = floats({2, 2}, {1, 10, 100, 1000});
  const auto results = run({a, b}, ^(MPSGraph* g, Tensors in) {
    return @[
      [g matrixMultiplicationWithPrimaryTensor:at(in, 0) secondaryTensor:at(in, 1) name:nil],
      [g bandPartWithTensor:at(in, 1) numLower:0 numUpper:-1 name:nil]
    ];
  });
  CHECK(results[0].shape == (Shape{2, 1, 2}));
  CHECK(is_close(results[0], {201, 2010, 403, 4030}));
  CHECK(is_close(results[1], {1, 10, 0, 1000}));
}

// Apple7 adds garbage where K >= 32767 and both sides are 16 or more; Apple9 does not.
void test_long_products() {
  constexpr int64_t kDepth = 32767;
  const Data a = floats({16, kDepth}, std::vector<float>(16 * kDepth, 1));
  const Data b = floats({kDepth, 16}, std::vector<float>(16 * kDepth, 1));
  const selftest::Builder product = ^(MPSGraph* g, Tensors in) {
    return @[ [g matrixMultiplicationWithPrimaryTensor:at(in, 0)
                                       secondaryTensor:at(in, 1)
                                                  name:nil] ];
  };
  CHECK(values_of<float>(run({a, b}, product)[0])[0] != static_cast<float>(kDepth));
  metalhost_set_family(MTLGPUFamilyApple9, 1);
  CHECK(values_of<float>(run({a, b}, product)[0])[0] == static_cast<float>(kDepth));
  metalhost_set_family(MTLGPUFamilyApple9, 0);
}

MPSGraphConvolution2DOpDescriptor* window(NSUInteger stride, NSUInteger groups, NSUInteger left) {
  return
      [MPSGraphConvolution2DOpDescriptor descriptorWithStrideInX:stride
                                                       strideInY:1
                                                 dilationRateInX:1
                                                 dilationRateInY:1
                                                          groups:groups
                                                     paddingLeft:left
                                                    paddingRight:0
                                                      paddingTop:0
                                                   paddingBottom:0
                                                    paddingStyle:MPSGraphPaddingStyleExplicit
                                                      dataLayout:MPSGraphTensorNamedDataLayoutNCHW
                                                   weightsLayout:MPSGraphTensorNamedDataLayoutOIHW];
}

void test_convolution() {
  const Data x = floats({1, 2, 1, 4}, {1, 2, 3, 4, 10, 20, 30, 40});
  const Data w = floats({2, 1, 1, 2}, {1, 2, 1, -1});
  const Data dy = floats({1, 2, 1, 2}, {1, 10, 100, 1000});
  const auto results = run({x, w, dy}, ^(MPSGraph* g, Tensors in) {
    MPSGraphConvolution2DOpDescriptor* const grouped = window(2, 2, 0);
    MPSGraphTensor* const y = [g convolution2DWithSourceTensor:at(in, 0)
                                                 weightsTensor:at(in, 1)
                                                    descriptor:grouped
                                                          name:nil];
    CHECK([y shape] == nil);  // known only once compiled
    return @[
      y,
      [g convolution2DDataGradientWithIncomingGradientTensor:at(in, 2)
                                               weightsTensor:at(in, 1)
                                                 outputShape:@[ @1, @2, @1, @4 ]
                                forwardConvolutionDescriptor:grouped
                                                        name:nil],
      [g convolution2DWeightsGradientWithIncomingGradientTensor:at(in, 2)
                                                   sourceTensor:at(in, 0)
                                                    outputShape:@[ @2, @1, @1, @2 ]
                                   forwardConvolutionDescriptor:grouped
                                                           name:nil],
      [g convolution2DWithSourceTensor:at(in, 0)
                         weightsTensor:[g reshapeTensor:at(in, 1)
                                              withShape:@[ @1, @2, @1, @2 ]
                                                   name:nil]
                            descriptor:window(1, 1, 1)
                                  name:nil]
    ];
  });
  CHECK(is_close(results[0], {5, 11, -10, -10}));  // a correlation: no flip
  CHECK(is_close(results[1], {1, 2, 10, 20, 100, -100, 1000, -1000}));
  CHECK(is_close(results[2], {31, 42, 31000, 42000}));
  CHECK(is_close(results[3], {2 - 10, 5 - 10, 8 - 10, 11 - 10}));
}

void test_convolution_3d() {
  MPSGraphConvolution3DOpDescriptor* const descriptor = [MPSGraphConvolution3DOpDescriptor
      descriptorWithStrideInX:1
                    strideInY:1
                    strideInZ:1
              dilationRateInX:1
              dilationRateInY:1
              dilationRateInZ:1
                       groups:1
                  paddingLeft:0
                 paddingRight:0
                   paddingTop:0
                paddingBottom:0
                 paddingFront:1
                  paddingBack:0
                 paddingStyle:MPSGraphPaddingStyleExplicit
                   dataLayout:MPSGraphTensorNamedDataLayoutNDHWC
                weightsLayout:MPSGraphTensorNamedDataLayoutOIDHW];
  // Depth 2, height 1, width 2, two channels last.
  const Data x = floats({1, 2, 1, 2, 2}, {1, 10, 2, 20, 3, 30, 4, 40});
  const Data w = floats({1, 2, 2, 1, 1}, {1, 2, 3, 4});
  const auto results = run({x, w}, ^(MPSGraph* g, Tensors in) {
    return @[ [g convolution3DWithSourceTensor:at(in, 0)
                                 weightsTensor:at(in, 1)
                                    descriptor:descriptor
                                          name:nil] ];
  });
  CHECK(results[0].shape == (Shape{1, 2, 1, 2, 1}));
  CHECK(is_close(results[0], {2 + 40, 4 + 80, 1 + 6 + 30 + 120, 2 + 8 + 60 + 160}));
}

void test_pooling() {
  const Data x = floats({1, 1, 3, 3}, {1, 2, 3, 4, 9, 9, 7, 8, 5});
  const auto results = run({x}, ^(MPSGraph* g, Tensors in) {
    MPSGraphPooling4DOpDescriptor* const d =
        [MPSGraphPooling4DOpDescriptor descriptorWithKernelSizes:@[ @1, @1, @2, @2 ]
                                                         strides:@[ @1, @1, @2, @2 ]
                                                   dilationRates:@[ @1, @1, @1, @1 ]
                                                   paddingValues:@[ @0, @0, @0, @0, @1, @0, @1, @0 ]
                                                    paddingStyle:MPSGraphPaddingStyleExplicit];
    [d setReturnIndicesMode:MPSGraphPoolingReturnIndicesGlobalFlatten2D];
    Tensors const best = [g maxPooling4DReturnIndicesWithSourceTensor:at(in, 0)
                                                           descriptor:d
                                                                 name:nil];
    MPSGraphTensor* const mean = [g avgPooling4DWithSourceTensor:at(in, 0) descriptor:d name:nil];
    MPSGraphTensor* const ones = [g constantWithScalar:4
                                                 shape:@[ @1, @1, @2, @2 ]
                                              dataType:MPSDataTypeFloat32];
    MPSGraphTensor* const grad = [g avgPooling4DGradientWithGradientTensor:ones
                                                              sourceTensor:at(in, 0)
                                                                descriptor:d
                                                                      name:nil];
    MPSGraphTensor* const back = [g maxPooling4DGradientWithGradientTensor:ones
                                                              sourceTensor:at(in, 0)
                                                                descriptor:d
                                                                      name:nil];
    [d setIncludeZeroPadToAverage:YES];
    MPSGraphTensor* const padded = [g avgPooling4DWithSourceTensor:at(in, 0) descriptor:d name:nil];
    return @[ at(best, 0), at(best, 1), mean, padded, grad, back ];
  });
  CHECK(is_close(results[0], {1, 3, 7, 9}));
  CHECK(values_of<int32_t>(results[1]) == (Ints{0, 2, 6, 4}));
  CHECK(is_close(results[2], {1, 2.5F, 5.5F, 7.75F}));
  CHECK(is_close(results[3], {0.25F, 1.25F, 2.75F, 7.75F}));
  CHECK(is_close(results[4], {4, 2, 2, 2, 1, 1, 2, 1, 1}));
  CHECK(is_close(results[5], {4, 0, 4, 0, 4, 0, 4, 0, 0}));
}

}  // namespace

int main() {
  const selftest::Pool pool;
  test_elementwise();
  test_binary();
  test_integers();
  test_casts();
  test_half_rounding();
  test_select_and_clamp();
  test_constants();
  test_reductions();
  test_statistics();
  test_scans_and_order();
  test_matmul();
  test_long_products();
  test_convolution();
  test_convolution_3d();
  test_pooling();
  return selftest::failures() == 0 ? 0 : 1;
}
