// What the frameworks assert on ends the process here too: each case runs in a child.
#include <sys/mman.h>

#include "running.h"

using selftest::aborts_with;
using selftest::numbers;

namespace {

MPSGraph* graph() {
  static MPSGraph* const shared = [[MPSGraph alloc] init];
  return shared;
}

MPSGraphTensor* placeholder(MPSDataType type, const std::vector<int64_t>& shape) {
  return [graph() placeholderWithShape:numbers(shape) dataType:type name:nil];
}

MPSGraphTensor* floats(const std::vector<int64_t>& shape) {
  return placeholder(MPSDataTypeFloat32, shape);
}
MPSGraphTensor* halves(const std::vector<int64_t>& shape) {
  return placeholder(MPSDataTypeFloat16, shape);
}
MPSGraphTensor* ints(const std::vector<int64_t>& shape) {
  return placeholder(MPSDataTypeInt32, shape);
}

void test_element_types() {
  CHECK(aborts_with("'mps.addition' op requires the same element type for all operands", ^{
    [graph() additionWithPrimaryTensor:floats({2}) secondaryTensor:halves({2}) name:nil];
  }));
  CHECK(aborts_with("must be tensor of floating point values, but got 'tensor<2xsi32>'", ^{
    [graph() exponentWithTensor:ints({2}) name:nil];
  }));
  CHECK(aborts_with("Function floorOp_si32 was not found in the library", ^{
    [graph() floorWithTensor:ints({2}) name:nil];
  }));
  CHECK(aborts_with("operand #0 must be tensor of numbers, but got 'tensor<2xi1>'", ^{
    [graph() reductionSumWithTensor:placeholder(MPSDataTypeBool, {2}) axes:@[ @0 ] name:nil];
  }));
  CHECK(aborts_with("'mps.select' op operand #0 must be tensor of 1-bit values", ^{
    [graph() selectWithPredicateTensor:ints({2})
                   truePredicateTensor:ints({2})
                  falsePredicateTensor:ints({2})
                                  name:nil];
  }));
  CHECK(aborts_with("indices must be tensor of 32-bit or 64-bit integers", ^{
    [graph() gatherAlongAxis:0 withUpdatesTensor:floats({2}) indicesTensor:floats({2}) name:nil];
  }));
  CHECK(aborts_with("an operand is nil", ^{
    MPSGraphTensor* missing = nil;
    [graph() squareWithTensor:missing name:nil];
  }));
}

void test_shapes() {
  CHECK(aborts_with("requires broadcast compatible shapes, got (2, 3) and (2)", ^{
    [graph() additionWithPrimaryTensor:floats({2, 3}) secondaryTensor:floats({2}) name:nil];
  }));
  CHECK(aborts_with("zero-size dimension in tensor<0x2xf32>", ^{
    floats({0, 2});
  }));
  CHECK(aborts_with("has a dynamic shape", ^{
    floats({-1, 2});
  }));
  CHECK(aborts_with("the result shape (4) is not compatible with 'tensor<2x3xf32>'", ^{
    [graph() reshapeTensor:floats({2, 3}) withShape:@[ @4 ] name:nil];
  }));
  CHECK(aborts_with("requires a permutation, got (0, 0)", ^{
    [graph() transposeTensor:floats({2, 3}) permutation:@[ @0, @0 ] name:nil];
  }));
  CHECK(aborts_with("zero-size dimension", ^{
    [graph() sliceTensor:floats({4}) starts:@[ @2 ] ends:@[ @2 ] strides:@[ @1 ] name:nil];
  }));
  CHECK(aborts_with("sliceUpdateDataTensor shape mismatch: tensor<3xf32> for (2)", ^{
    [graph() sliceUpdateDataTensor:floats({4})
                      updateTensor:floats({3})
                            starts:@[ @0 ]
                              ends:@[ @2 ]
                           strides:@[ @1 ]
                         startMask:0
                           endMask:0
                       squeezeMask:0
                              name:nil];
  }));
  CHECK(aborts_with("does not take a tensor of rank 0", ^{
    MPSGraphTensor* const scalar = [graph() constantWithScalar:1 dataType:MPSDataTypeFloat32];
    [graph() reinterpretCastTensor:scalar toType:MPSDataTypeInt32 name:nil];
  }));
  CHECK(aborts_with("requires padding of 0 or more", ^{
    [graph() padTensor:floats({4})
        withPaddingMode:MPSGraphPaddingModeConstant
            leftPadding:@[ @-1 ]
           rightPadding:@[ @0 ]
          constantValue:0
                   name:nil];
  }));
  CHECK(aborts_with("has 4 bytes for 'tensor<2xf32>', which takes 8", ^{
    [graph() constantWithData:[NSMutableData dataWithLength:4]
                        shape:@[ @2 ]
                     dataType:MPSDataTypeFloat32];
  }));
}

void test_limits() {
  CHECK(aborts_with("NDArray dimension length > INT_MAX", ^{
    placeholder(MPSDataTypeInt8, {int64_t{1} << 31});
  }));
  CHECK(aborts_with("product of dimension sizes > 2**31", ^{
    placeholder(MPSDataTypeInt8, {1 << 16, (1 << 15) + 1});
  }));
  CHECK(aborts_with("total bytes of NDArray > 2**32", ^{
    floats({1 << 16, (1 << 14) + 1});
  }));
  CHECK(aborts_with("product of dimension sizes > 2**31", ^{
    metalhost_limit_tensor(7, 0);
    floats({8});
  }));
}

void test_axes() {
  MPSGraphTensor* const five = floats({2, 2, 2, 2, 2});
  CHECK(aborts_with("This class only supports axis = 0, 1, 2, 3", ^{
    [graph() cumulativeSumWithTensor:five axis:0 name:nil];
  }));
  CHECK(aborts_with("This class only supports axis = 0, 1, 2, 3", ^{
    [graph() argSortWithTensor:five axis:0 descending:NO name:nil];
  }));
  CHECK(aborts_with("This class only supports axis = 0, 1, 2, 3", ^{
    [graph() topKWithSourceTensor:five axis:0 k:1 name:nil];
  }));
  CHECK(aborts_with("requires 1 <= k <= the length of the axis, got k = 0", ^{
    [graph() topKWithSourceTensor:five k:0 name:nil];
  }));
  CHECK(aborts_with("axis 1 is out of range for rank 1", ^{
    [graph() reductionSumWithTensor:floats({2}) axis:1 name:nil];
  }));
  CHECK(aborts_with("axis -1 is out of range for rank 1", ^{
    [graph() reductionSumWithTensor:floats({2}) axis:-1 name:nil];
  }));
  CHECK(aborts_with("axes must be unique", ^{
    [graph() reductionSumWithTensor:floats({2}) axes:@[ @0, @0 ] name:nil];
  }));
}

void test_products_and_windows() {
  CHECK(aborts_with("operands need rank 2 or more, got 'tensor<2xf32>'", ^{
    [graph() matrixMultiplicationWithPrimaryTensor:floats({2})
                                   secondaryTensor:floats({2, 2})
                                              name:nil];
  }));
  CHECK(aborts_with("rank is above 4", ^{
    [graph() matrixMultiplicationWithPrimaryTensor:floats({1, 1, 1, 2, 2})
                                   secondaryTensor:floats({2, 2})
                                              name:nil];
  }));
  CHECK(aborts_with("contracting dimensions differ", ^{
    [graph() matrixMultiplicationWithPrimaryTensor:floats({2, 3})
                                   secondaryTensor:floats({2, 3})
                                              name:nil];
  }));
  MPSGraphConvolution2DOpDescriptor* const descriptor =
      [[[MPSGraphConvolution2DOpDescriptor alloc] init] autorelease];
  [descriptor setDataLayout:MPSGraphTensorNamedDataLayoutNCHW];
  [descriptor setWeightsLayout:MPSGraphTensorNamedDataLayoutOIHW];
  CHECK(aborts_with("groups 0", ^{  // a plain new object has no documented default
    [graph() convolution2DWithSourceTensor:floats({1, 1, 4, 4})
                             weightsTensor:floats({1, 1, 2, 2})
                                descriptor:descriptor
                                      name:nil];
  }));
  [descriptor setGroups:1];
  CHECK(aborts_with("requires source and weights of rank 4", ^{
    [graph() convolution2DWithSourceTensor:floats({1, 4, 4})
                             weightsTensor:floats({1, 1, 2, 2})
                                descriptor:descriptor
                                      name:nil];
  }));
  CHECK(aborts_with("Source and weight input channels mismatch", ^{
    [graph() convolution2DWithSourceTensor:floats({1, 3, 4, 4})
                             weightsTensor:floats({1, 2, 2, 2})
                                descriptor:descriptor
                                      name:nil];
  }));
  CHECK(aborts_with("the gradient 'tensor<1x1x4x4xf32>' does not fit", ^{
    [graph() convolution2DDataGradientWithIncomingGradientTensor:floats({1, 1, 4, 4})
                                                   weightsTensor:floats({1, 1, 2, 2})
                                                     outputShape:@[ @1, @1, @4, @4 ]
                                    forwardConvolutionDescriptor:descriptor
                                                            name:nil];
  }));
  CHECK(aborts_with("requires rank 4 and four entries", ^{
    [graph()
        avgPooling4DWithSourceTensor:floats({4, 4})
                          descriptor:[MPSGraphPooling4DOpDescriptor
                                         descriptorWithKernelSizes:@[ @1, @1, @2, @2 ]
                                                      paddingStyle:MPSGraphPaddingStyleExplicit]
                                name:nil];
  }));
  CHECK(aborts_with("updates and indices must have one shape", ^{
    [graph() scatterAlongAxis:0
               withDataTensor:floats({4})
                updatesTensor:floats({3})
                indicesTensor:ints({2})
                         mode:MPSGraphScatterModeAdd
                         name:nil];
  }));
}

void test_memory() {
  CHECK(aborts_with("Cannot create buffer of zero length", ^{
    [selftest::device() newBufferWithLength:0 options:MTLResourceStorageModeShared];
  }));
  CHECK(aborts_with("pointer is not page aligned", ^{
    alignas(4096) static char bytes[8192];
    [selftest::device() newBufferWithBytesNoCopy:bytes + 1
                                          length:4096
                                         options:MTLResourceStorageModeShared
                                     deallocator:nil];
  }));
  CHECK(aborts_with("buffer is not large enough. Must be 12 bytes", ^{
    id<MTLBuffer> const buffer = [selftest::device() newBufferWithLength:8 options:0];
    [[MPSGraphTensorData alloc] initWithMTLBuffer:buffer shape:@[ @3 ] dataType:MPSDataTypeFloat32];
  }));
  CHECK(aborts_with("a tensor data of rank 0", ^{
    id<MTLBuffer> const buffer = [selftest::device() newBufferWithLength:8 options:0];
    [[MPSGraphTensorData alloc] initWithMTLBuffer:buffer shape:@[] dataType:MPSDataTypeFloat32];
  }));
}

void test_command_buffers() {
  CHECK(aborts_with("commit an already committed command buffer", ^{
    id<MTLCommandBuffer> const buffer = [[selftest::device() newCommandQueue] commandBuffer];
    [buffer commit];
    [buffer commit];
  }));
  CHECK(aborts_with("Completed handler provided after commit call", ^{
    id<MTLCommandBuffer> const buffer = [[selftest::device() newCommandQueue] commandBuffer];
    [buffer commit];
    [buffer addCompletedHandler:^(id<MTLCommandBuffer>){
    }];
  }));
  CHECK(aborts_with("waitUntilCompleted of a command buffer that is not committed", ^{
    [[[selftest::device() newCommandQueue] commandBuffer] waitUntilCompleted];
  }));
}

MPSGraphExecutable* compiled(MPSGraphTensor* input, MPSGraphTensor* target, NSArray* shape) {
  MPSGraphShapedType* const type = [[MPSGraphShapedType alloc] initWithShape:shape
                                                                    dataType:[input dataType]];
  return [graph() compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:selftest::device()]
                              feeds:@{input : type}
                      targetTensors:@[ target ]
                   targetOperations:nil
              compilationDescriptor:nil];
}

MPSGraphTensorData* data(NSArray* shape, MPSDataType type) {
  id<MTLBuffer> const buffer = [selftest::device() newBufferWithLength:64 options:0];
  return [[MPSGraphTensorData alloc] initWithMTLBuffer:buffer shape:shape dataType:type];
}

void test_bindings() {
  MPSGraphTensor* const x = floats({2});
  MPSGraphTensor* const y = [graph() squareWithTensor:x name:nil];
  CHECK(aborts_with("Invalid shape for feeds at index 0: expected tensor<2xf32>", ^{
    compiled(x, y, @[ @3 ]);
  }));
  CHECK(aborts_with("the placeholder of type tensor<2xf32> is not in the feeds", ^{
    MPSGraphTensor* const other = floats({2});
    compiled(x, [graph() additionWithPrimaryTensor:x secondaryTensor:other name:nil], @[ @2 ]);
  }));
  void (^const encode)(MPSGraphTensorData*, MPSGraphTensorData*) =
      ^(MPSGraphTensorData* input, MPSGraphTensorData* result) {
        [compiled(x, y, @[ @2 ]) runWithMTLCommandQueue:[selftest::device() newCommandQueue]
                                            inputsArray:@[ input ]
                                           resultsArray:@[ result ]
                                    executionDescriptor:nil];
      };
  CHECK(aborts_with("Incompatible element type for inputsArray at index 0", ^{
    encode(data(@[ @2 ], MPSDataTypeInt32), data(@[ @2 ], MPSDataTypeFloat32));
  }));
  CHECK(aborts_with("New rank: 2 should match destination: 1", ^{
    encode(data(@[ @2 ], MPSDataTypeFloat32), data(@[ @1, @2 ], MPSDataTypeFloat32));
  }));
  CHECK(aborts_with("has an operand of another graph", ^{
    [[[MPSGraph alloc] init] squareWithTensor:x name:nil];
  }));
}

}  // namespace

int main() {
  const selftest::Pool pool;
  test_element_types();
  test_shapes();
  test_limits();
  test_axes();
  test_products_and_windows();
  test_memory();
  test_command_buffers();
  test_bindings();
  return selftest::failures() == 0 ? 0 : 1;
}
