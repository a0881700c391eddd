// Builder methods: operations that move elements.
#include "objects.h"
#include "recipe.h"

using metalhost::emit;
using metalhost::emit_all;
using metalhost::Shape;
using metalhost::shape_from;
using metalhost::SliceRange;
using metalhost::type_of;

namespace {

SliceRange range_from(NSArray<NSNumber*>* starts, NSArray<NSNumber*>* ends,
                      NSArray<NSNumber*>* strides) {
  return {.starts = shape_from(starts), .ends = shape_from(ends), .strides = shape_from(strides)};
}

Shape swapped_axes(int64_t rank, NSUInteger first, NSUInteger second) {
  Shape permutation;
  for (int64_t i = 0; i < rank; ++i) permutation.push_back(i);
  const auto limit = static_cast<NSUInteger>(rank);
  if (first >= limit || second >= limit) metalhost::refuse("transpose", "axis is out of range");
  std::swap(permutation[first], permutation[second]);
  return permutation;
}

}  // namespace

@implementation MPSGraph (MPSGraphTensorShapeOps)

- (MPSGraphTensor*)reshapeTensor:(MPSGraphTensor*)tensor
                       withShape:(MPSShape*)shape
                            name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::reshape>(type_of(tensor), shape_from(shape)),
              {tensor});
}
- (MPSGraphTensor*)transposeTensor:(MPSGraphTensor*)tensor
                         dimension:(NSUInteger)first
                     withDimension:(NSUInteger)second
                              name:(NSString*)name {
  const Shape permutation = swapped_axes(type_of(tensor).rank(), first, second);
  return emit(self, metalhost::made<metalhost::transpose>(type_of(tensor), permutation), {tensor});
}
- (MPSGraphTensor*)transposeTensor:(MPSGraphTensor*)tensor
                       permutation:(NSArray<NSNumber*>*)permutation
                              name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::transpose>(type_of(tensor), shape_from(permutation)),
              {tensor});
}

- (MPSGraphTensor*)sliceTensor:(MPSGraphTensor*)tensor
                     dimension:(NSUInteger)axis
                         start:(NSInteger)start
                        length:(NSInteger)length
                          name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::slice_length>(type_of(tensor), static_cast<int64_t>(axis),
                                                       start, length),
              {tensor});
}
- (MPSGraphTensor*)sliceTensor:(MPSGraphTensor*)tensor
                        starts:(NSArray<NSNumber*>*)starts
                          ends:(NSArray<NSNumber*>*)ends
                       strides:(NSArray<NSNumber*>*)strides
                          name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::slice>(type_of(tensor), range_from(starts, ends, strides)),
              {tensor});
}
- (MPSGraphTensor*)sliceTensor:(MPSGraphTensor*)tensor
                        starts:(NSArray<NSNumber*>*)starts
                          ends:(NSArray<NSNumber*>*)ends
                       strides:(NSArray<NSNumber*>*)strides
                     startMask:(uint32_t)startMask
                       endMask:(uint32_t)endMask
                   squeezeMask:(uint32_t)squeezeMask
                          name:(NSString*)name {
  SliceRange range = range_from(starts, ends, strides);
  range.start_mask = startMask;
  range.end_mask = endMask;
  range.squeeze_mask = squeezeMask;
  return emit(self, metalhost::made<metalhost::slice>(type_of(tensor), range), {tensor});
}
- (MPSGraphTensor*)sliceUpdateDataTensor:(MPSGraphTensor*)data
                            updateTensor:(MPSGraphTensor*)update
                                  starts:(NSArray<NSNumber*>*)starts
                                    ends:(NSArray<NSNumber*>*)ends
                                 strides:(NSArray<NSNumber*>*)strides
                               startMask:(uint32_t)startMask
                                 endMask:(uint32_t)endMask
                             squeezeMask:(uint32_t)squeezeMask
                                    name:(NSString*)name {
  SliceRange range = range_from(starts, ends, strides);
  range.start_mask = startMask;
  range.end_mask = endMask;
  range.squeeze_mask = squeezeMask;
  return emit(self, metalhost::made<metalhost::slice_update>(type_of(data), type_of(update), range),
              {data, update});
}
- (MPSGraphTensor*)sliceUpdateDataTensor:(MPSGraphTensor*)data
                            updateTensor:(MPSGraphTensor*)update
                                  starts:(NSArray<NSNumber*>*)starts
                                    ends:(NSArray<NSNumber*>*)ends
                                 strides:(NSArray<NSNumber*>*)strides
                                    name:(NSString*)name {
  return [self sliceUpdateDataTensor:data
                        updateTensor:update
                              starts:starts
                                ends:ends
                             strides:strides
                           startMask:0
                             endMask:0
                         squeezeMask:0
                                name:name];
}

- (MPSGraphTensor*)concatTensor:(MPSGraphTensor*)tensor
                     withTensor:(MPSGraphTensor*)tensor2
                      dimension:(NSInteger)axis
                           name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::concat>({type_of(tensor), type_of(tensor2)}, axis),
              {tensor, tensor2});
}
- (MPSGraphTensor*)concatTensors:(NSArray<MPSGraphTensor*>*)tensors
                       dimension:(NSInteger)axis
                            name:(NSString*)name {
  return [emit_all(self, metalhost::made<metalhost::concat>(metalhost::types_of(tensors), axis),
                   tensors) objectAtIndex:0];
}
- (MPSGraphTensor*)stackTensors:(NSArray<MPSGraphTensor*>*)tensors
                           axis:(NSInteger)axis
                           name:(NSString*)name {
  return [emit_all(self, metalhost::made<metalhost::stack>(metalhost::types_of(tensors), axis),
                   tensors) objectAtIndex:0];
}
- (NSArray<MPSGraphTensor*>*)splitTensor:(MPSGraphTensor*)tensor
                              splitSizes:(NSArray<NSNumber*>*)sizes
                                    axis:(NSInteger)axis
                                    name:(NSString*)name {
  return emit_all(self, metalhost::made<metalhost::split>(type_of(tensor), shape_from(sizes), axis),
                  @[ tensor ]);
}
- (NSArray<MPSGraphTensor*>*)splitTensor:(MPSGraphTensor*)tensor
                               numSplits:(NSUInteger)count
                                    axis:(NSInteger)axis
                                    name:(NSString*)name {
  const metalhost::Type& type = type_of(tensor);
  const int64_t position = axis < 0 ? axis + type.rank() : axis;
  if (position < 0 || position >= type.rank() || count == 0 ||
      type.shape[static_cast<size_t>(position)] % static_cast<int64_t>(count) != 0) {
    metalhost::refuse("split", "numSplits must divide the axis of '" + text_of(type) + "'");
  }
  const int64_t size = type.shape[static_cast<size_t>(position)] / static_cast<int64_t>(count);
  return emit_all(self, metalhost::made<metalhost::split>(type, Shape(count, size), position),
                  @[ tensor ]);
}

- (MPSGraphTensor*)tileTensor:(MPSGraphTensor*)tensor
               withMultiplier:(MPSShape*)multiplier
                         name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::tile>(type_of(tensor), shape_from(multiplier)),
              {tensor});
}
- (MPSGraphTensor*)padTensor:(MPSGraphTensor*)tensor
             withPaddingMode:(MPSGraphPaddingMode)mode
                 leftPadding:(MPSShape*)left
                rightPadding:(MPSShape*)right
               constantValue:(double)value
                        name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::pad>(type_of(tensor), mode, shape_from(left),
                                              shape_from(right), value),
              {tensor});
}
- (MPSGraphTensor*)reverseTensor:(MPSGraphTensor*)tensor
                            axes:(NSArray<NSNumber*>*)axes
                            name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::reverse>(type_of(tensor), shape_from(axes)),
              {tensor});
}
- (MPSGraphTensor*)flatten2DTensor:(MPSGraphTensor*)tensor
                              axis:(NSInteger)axis
                              name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::flatten>(type_of(tensor), axis), {tensor});
}
- (MPSGraphTensor*)broadcastTensor:(MPSGraphTensor*)tensor
                           toShape:(MPSShape*)shape
                              name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::broadcast>(type_of(tensor), shape_from(shape)),
              {tensor});
}
- (MPSGraphTensor*)shapeOfTensor:(MPSGraphTensor*)tensor name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::shape_of>(type_of(tensor)), {tensor});
}
- (MPSGraphTensor*)castTensor:(MPSGraphTensor*)tensor
                       toType:(MPSDataType)type
                         name:(NSString*)name {
  return emit(
      self,
      metalhost::made<metalhost::cast>(type_of(tensor), static_cast<metalhost::DataType>(type)),
      {tensor});
}
- (MPSGraphTensor*)reinterpretCastTensor:(MPSGraphTensor*)tensor
                                  toType:(MPSDataType)type
                                    name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::reinterpret_cast_op>(
                  type_of(tensor), static_cast<metalhost::DataType>(type)),
              {tensor});
}

- (MPSGraphTensor*)squeezeTensor:(MPSGraphTensor*)tensor name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::squeeze_all>(type_of(tensor)), {tensor});
}
- (MPSGraphTensor*)squeezeTensor:(MPSGraphTensor*)tensor axis:(NSInteger)axis name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::squeeze>(type_of(tensor), {axis}), {tensor});
}
- (MPSGraphTensor*)squeezeTensor:(MPSGraphTensor*)tensor
                            axes:(NSArray<NSNumber*>*)axes
                            name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::squeeze>(type_of(tensor), shape_from(axes)),
              {tensor});
}
- (MPSGraphTensor*)expandDimsOfTensor:(MPSGraphTensor*)tensor
                                 axis:(NSInteger)axis
                                 name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::expand_dims>(type_of(tensor), {axis}), {tensor});
}
- (MPSGraphTensor*)expandDimsOfTensor:(MPSGraphTensor*)tensor
                                 axes:(NSArray<NSNumber*>*)axes
                                 name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::expand_dims>(type_of(tensor), shape_from(axes)),
              {tensor});
}
- (MPSGraphTensor*)coordinateAlongAxis:(NSInteger)axis
                             withShape:(MPSShape*)shape
                                  name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::coordinate>(axis, shape_from(shape)), {});
}
@end
