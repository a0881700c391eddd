// Operations that move elements: shapes, slices, gather and scatter.
#include "running.h"

using selftest::Data;
using selftest::floats;
using selftest::ints;
using selftest::is_close;
using selftest::run;
using selftest::values_of;

namespace {

using Ints = std::vector<int32_t>;
using Shape = std::vector<int64_t>;
using Tensors = NSArray<MPSGraphTensor*>*;

MPSGraphTensor* at(Tensors tensors, NSUInteger index) { return [tensors objectAtIndex:index]; }

void test_shapes() {
  const Data x = floats({2, 3}, {0, 1, 2, 3, 4, 5});
  const auto results = run({x}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const t = at(in, 0);
    return @[
      [g reshapeTensor:t withShape:@[ @3, @-1 ] name:nil],
      [g transposeTensor:t permutation:@[ @1, @0 ] name:nil],
      [g sliceTensor:t starts:@[ @0, @2 ] ends:@[ @2, @-4 ] strides:@[ @1, @-1 ] name:nil],
      [g sliceTensor:t dimension:1 start:-2 length:2 name:nil],
      [g concatTensors:@[ t, t ] dimension:1 name:nil], [g stackTensors:@[ t, t ] axis:0 name:nil],
      [g padTensor:t
          withPaddingMode:MPSGraphPaddingModeConstant
              leftPadding:@[ @1, @0 ]
             rightPadding:@[ @0, @1 ]
            constantValue:7
                     name:nil],
      [g padTensor:t
          withPaddingMode:MPSGraphPaddingModeReflect
              leftPadding:@[ @0, @2 ]
             rightPadding:@[ @0, @0 ]
            constantValue:0
                     name:nil],
      [g tileTensor:t withMultiplier:@[ @1, @2 ] name:nil],
      [g reverseTensor:t axes:@[ @1 ] name:nil],
      at([g splitTensor:t splitSizes:@[ @1, @2 ] axis:1 name:nil], 1)
    ];
  });
  CHECK(results[0].shape == (Shape{3, 2}));
  CHECK(is_close(results[1], {0, 3, 1, 4, 2, 5}));
  CHECK(is_close(results[2], {2, 1, 0, 5, 4, 3}));
  CHECK(is_close(results[3], {1, 2, 4, 5}));
  CHECK(is_close(results[4], {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  CHECK(results[5].shape == (Shape{2, 2, 3}));
  CHECK(is_close(results[6], {7, 7, 7, 7, 0, 1, 2, 7, 3, 4, 5, 7}));
  CHECK(is_close(results[7], {2, 1, 0, 1, 2, 5, 4, 3, 4, 5}));
  CHECK(is_close(results[8], {0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
  CHECK(is_close(results[9], {2, 1, 0, 5, 4, 3}));
  CHECK(is_close(results[10], {1, 2, 4, 5}));
}

void test_more_shapes() {
  const Data x = floats({1, 2, 1, 3}, {0, 1, 2, 3, 4, 5});
  const Data y = floats({1, 1, 1, 2}, {8, 9});
  const auto results = run({x, y}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const t = at(in, 0);
    return @[
      [g squeezeTensor:t name:nil], [g squeezeTensor:t axis:-2 name:nil],
      [g expandDimsOfTensor:t axes:@[ @0, @-1 ] name:nil], [g flatten2DTensor:t axis:2 name:nil],
      [g sliceTensor:t
               starts:@[ @0, @1, @0, @0 ]
                 ends:@[ @0, @0, @0, @2 ]
              strides:@[ @1, @1, @1, @1 ]
            startMask:0
              endMask:0b0101
          squeezeMask:0b0010
                 name:nil],
      [g sliceUpdateDataTensor:t
                  updateTensor:at(in, 1)
                        starts:@[ @0, @1, @0, @0 ]
                          ends:@[ @1, @2, @1, @3 ]
                       strides:@[ @1, @1, @1, @2 ]
                     startMask:0
                       endMask:0
                   squeezeMask:0
                          name:nil],
      at([g splitTensor:t numSplits:3 axis:-1 name:nil], 2),
      [g transposeTensor:t dimension:1 withDimension:3 name:nil]
    ];
  });
  CHECK(results[0].shape == (Shape{2, 3}));
  CHECK(results[1].shape == (Shape{1, 2, 3}));
  CHECK(results[2].shape == (Shape{1, 1, 2, 1, 3, 1}));
  CHECK(results[3].shape == (Shape{2, 3}));
  CHECK(results[4].shape == (Shape{1, 1, 2}));
  CHECK(is_close(results[4], {3, 4}));
  CHECK(is_close(results[5], {0, 1, 2, 8, 4, 9}));
  CHECK(is_close(results[6], {2, 5}));
  CHECK(results[7].shape == (Shape{1, 3, 1, 2}));
  CHECK(is_close(results[7], {0, 3, 1, 4, 2, 5}));
}

void test_gather_and_scatter() {
  const Data x = floats({3, 2}, {0, 1, 10, 11, 20, 21});
  const Data rows = ints({3}, {2, 0, 2});
  const Data cells = ints({1, 2}, {1, -5});
  const auto results = run({x, rows, cells}, ^(MPSGraph* g, Tensors in) {
    MPSGraphTensor* const t = at(in, 0);
    return @[
      [g gatherWithUpdatesTensor:t indicesTensor:at(in, 1) axis:0 batchDimensions:0 name:nil],
      [g gatherAlongAxis:0 withUpdatesTensor:t indicesTensor:at(in, 2) name:nil],
      [g scatterWithDataTensor:t
                 updatesTensor:t
                 indicesTensor:at(in, 1)
                          axis:0
                          mode:MPSGraphScatterModeAdd
                          name:nil],
      [g scatterAlongAxis:0
           withDataTensor:t
            updatesTensor:[g constantWithScalar:9 shape:@[ @1, @2 ] dataType:MPSDataTypeFloat32]
            indicesTensor:at(in, 2)
                     mode:MPSGraphScatterModeSet
                     name:nil],
      [g oneHotWithIndicesTensor:at(in, 1) depth:3 name:nil],
      [g gatherNDWithUpdatesTensor:t
                     indicesTensor:[g reshapeTensor:at(in, 1) withShape:@[ @3, @1 ] name:nil]
                   batchDimensions:0
                              name:nil]
    ];
  });
  CHECK(is_close(results[0], {20, 21, 0, 1, 20, 21}));
  CHECK(is_close(results[1], {10, 0}));  // outside: zero
  CHECK(is_close(results[2], {10, 12, 10, 11, 40, 43}));
  CHECK(is_close(results[3], {0, 1, 9, 11, 20, 21}));  // outside: skipped
  CHECK(is_close(results[4], {0, 0, 1, 1, 0, 0, 0, 0, 1}));
  CHECK(is_close(results[5], {20, 21, 0, 1, 20, 21}));
  const auto lossy = run({ints({1}, {(1 << 24) + 1}), ints({1}, {0})}, ^(MPSGraph* g, Tensors in) {
    return @[ [g gatherWithUpdatesTensor:at(in, 0)
                           indicesTensor:at(in, 1)
                                    axis:0
                         batchDimensions:0
                                    name:nil] ];
  });
  CHECK(values_of<int32_t>(lossy[0]) == Ints{1 << 24});  // passes through float32
}

void test_scatter_modes() {
  const Data data = floats({3}, {6, 6, 6});
  const Data updates = floats({3}, {2, 3, 9});
  const Data where = ints({3}, {0, 0, 2});
  const MPSGraphScatterMode modes[] = {MPSGraphScatterModeAdd, MPSGraphScatterModeSub,
                                       MPSGraphScatterModeMul, MPSGraphScatterModeDiv,
                                       MPSGraphScatterModeMin, MPSGraphScatterModeMax,
                                       MPSGraphScatterModeSet};
  const std::vector<float> expected[] = {{11, 6, 15}, {1, 6, -3}, {36, 6, 54}, {1, 6, 6.0F / 9},
                                         {2, 6, 6},   {6, 6, 9},  {2, 6, 9}};
  for (size_t i = 0; i < std::size(modes); ++i) {
    const MPSGraphScatterMode mode = modes[i];
    const auto results = run({data, updates, where}, ^(MPSGraph* g, Tensors in) {
      MPSGraphTensor* const pairs = [g reshapeTensor:at(in, 2) withShape:@[ @3, @1 ] name:nil];
      return @[
        [g scatterAlongAxis:-1
             withDataTensor:at(in, 0)
              updatesTensor:at(in, 1)
              indicesTensor:at(in, 2)
                       mode:mode
                       name:nil],
        [g scatterNDWithDataTensor:at(in, 0)
                     updatesTensor:at(in, 1)
                     indicesTensor:pairs
                   batchDimensions:0
                              mode:mode
                              name:nil]
      ];
    });
    CHECK(is_close(results[0], expected[i]));
    CHECK(is_close(results[1], expected[i]));
  }
}

// Batch dimensions: row b of the indices picks from row b of the data.
void test_batched_gather() {
  const Data x = floats({2, 3}, {0, 1, 2, 10, 11, 12});
  const auto results = run({x, ints({2, 2}, {2, 0, 1, 1})}, ^(MPSGraph* g, Tensors in) {
    return @[ [g gatherWithUpdatesTensor:at(in, 0)
                           indicesTensor:at(in, 1)
                                    axis:1
                         batchDimensions:1
                                    name:nil] ];
  });
  CHECK(results[0].shape == (Shape{2, 2}));
  CHECK(is_close(results[0], {2, 0, 11, 11}));
}

}  // namespace

int main() {
  const selftest::Pool pool;
  test_shapes();
  test_more_shapes();
  test_gather_and_scatter();
  test_scatter_modes();
  test_batched_gather();
  return selftest::failures() == 0 ? 0 : 1;
}
