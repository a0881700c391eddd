// Builder methods: gather, scatter, one-hot vectors and sorting.
#include "objects.h"
#include "recipe.h"

using metalhost::emit;
using metalhost::emit_all;
using metalhost::Scatter;
using metalhost::shape_from;
using metalhost::type_of;

namespace {

int64_t signed_from(NSUInteger value) { return static_cast<int64_t>(value); }

Scatter mode_from(MPSGraphScatterMode mode) {
  if (mode < MPSGraphScatterModeAdd || mode > MPSGraphScatterModeSet) {
    metalhost::refuse("scatter", "has an unknown mode");
  }
  return static_cast<Scatter>(mode);  // the values agree
}
static_assert(static_cast<int>(Scatter::kAdd) == MPSGraphScatterModeAdd);
static_assert(static_cast<int>(Scatter::kSet) == MPSGraphScatterModeSet);

// What a scatter without data starts from: the value that the first update does not feel.
MPSGraphTensor* neutral(MPSGraph* graph, NSArray<NSNumber*>* shape, MPSGraphTensor* updates) {
  return [graph constantWithScalar:0 shape:shape dataType:[updates dataType]];
}

}  // namespace

@implementation MPSGraph (MPSGraphGatherOps)

- (MPSGraphTensor*)gatherNDWithUpdatesTensor:(MPSGraphTensor*)updates
                               indicesTensor:(MPSGraphTensor*)indices
                             batchDimensions:(NSUInteger)batchDimensions
                                        name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::gather_nd>(type_of(updates), type_of(indices),
                                                    signed_from(batchDimensions)),
              {updates, indices});
}
- (MPSGraphTensor*)gatherWithUpdatesTensor:(MPSGraphTensor*)updates
                             indicesTensor:(MPSGraphTensor*)indices
                                      axis:(NSUInteger)axis
                           batchDimensions:(NSUInteger)batchDimensions
                                      name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::gather>(type_of(updates), type_of(indices),
                                                 signed_from(axis), signed_from(batchDimensions)),
              {updates, indices});
}
- (MPSGraphTensor*)gatherAlongAxis:(NSInteger)axis
                 withUpdatesTensor:(MPSGraphTensor*)updates
                     indicesTensor:(MPSGraphTensor*)indices
                              name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::gather_along>(type_of(updates), type_of(indices), axis),
              {updates, indices});
}
@end

@implementation MPSGraph (MPSGraphScatterOps)

- (MPSGraphTensor*)scatterNDWithUpdatesTensor:(MPSGraphTensor*)updates
                                indicesTensor:(MPSGraphTensor*)indices
                                        shape:(MPSShape*)shape
                              batchDimensions:(NSUInteger)batchDimensions
                                         mode:(MPSGraphScatterMode)mode
                                         name:(NSString*)name {
  return [self scatterNDWithDataTensor:neutral(self, shape, updates)
                         updatesTensor:updates
                         indicesTensor:indices
                       batchDimensions:batchDimensions
                                  mode:mode
                                  name:name];
}
- (MPSGraphTensor*)scatterNDWithUpdatesTensor:(MPSGraphTensor*)updates
                                indicesTensor:(MPSGraphTensor*)indices
                                        shape:(MPSShape*)shape
                              batchDimensions:(NSUInteger)batchDimensions
                                         name:(NSString*)name {
  return [self scatterNDWithUpdatesTensor:updates
                            indicesTensor:indices
                                    shape:shape
                          batchDimensions:batchDimensions
                                     mode:MPSGraphScatterModeAdd
                                     name:name];
}
- (MPSGraphTensor*)scatterNDWithDataTensor:(MPSGraphTensor*)data
                             updatesTensor:(MPSGraphTensor*)updates
                             indicesTensor:(MPSGraphTensor*)indices
                           batchDimensions:(NSUInteger)batchDimensions
                                      mode:(MPSGraphScatterMode)mode
                                      name:(NSString*)name {
  return emit(
      self,
      metalhost::made<metalhost::scatter_nd>(type_of(data), type_of(updates), type_of(indices),
                                             signed_from(batchDimensions), mode_from(mode)),
      {data, updates, indices});
}
- (MPSGraphTensor*)scatterWithUpdatesTensor:(MPSGraphTensor*)updates
                              indicesTensor:(MPSGraphTensor*)indices
                                      shape:(MPSShape*)shape
                                       axis:(NSInteger)axis
                                       mode:(MPSGraphScatterMode)mode
                                       name:(NSString*)name {
  return [self scatterWithDataTensor:neutral(self, shape, updates)
                       updatesTensor:updates
                       indicesTensor:indices
                                axis:axis
                                mode:mode
                                name:name];
}
- (MPSGraphTensor*)scatterWithDataTensor:(MPSGraphTensor*)data
                           updatesTensor:(MPSGraphTensor*)updates
                           indicesTensor:(MPSGraphTensor*)indices
                                    axis:(NSInteger)axis
                                    mode:(MPSGraphScatterMode)mode
                                    name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::scatter>(type_of(data), type_of(updates), type_of(indices),
                                                  axis, mode_from(mode)),
              {data, updates, indices});
}
- (MPSGraphTensor*)scatterAlongAxis:(NSInteger)axis
                  withUpdatesTensor:(MPSGraphTensor*)updates
                      indicesTensor:(MPSGraphTensor*)indices
                              shape:(MPSShape*)shape
                               mode:(MPSGraphScatterMode)mode
                               name:(NSString*)name {
  return [self scatterAlongAxis:axis
                 withDataTensor:neutral(self, shape, updates)
                  updatesTensor:updates
                  indicesTensor:indices
                           mode:mode
                           name:name];
}
- (MPSGraphTensor*)scatterAlongAxis:(NSInteger)axis
                     withDataTensor:(MPSGraphTensor*)data
                      updatesTensor:(MPSGraphTensor*)updates
                      indicesTensor:(MPSGraphTensor*)indices
                               mode:(MPSGraphScatterMode)mode
                               name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::scatter_along>(type_of(data), type_of(updates),
                                                        type_of(indices), axis, mode_from(mode)),
              {data, updates, indices});
}
@end

@implementation MPSGraph (MPSGraphOneHotOps)

- (MPSGraphTensor*)oneHotWithIndicesTensor:(MPSGraphTensor*)indices
                                     depth:(NSUInteger)depth
                                      axis:(NSUInteger)axis
                                  dataType:(MPSDataType)dataType
                                   onValue:(double)onValue
                                  offValue:(double)offValue
                                      name:(NSString*)name {
  return emit(self,
              metalhost::made<metalhost::one_hot>(
                  type_of(indices), signed_from(depth), signed_from(axis),
                  static_cast<metalhost::DataType>(dataType), onValue, offValue),
              {indices});
}
- (MPSGraphTensor*)oneHotWithIndicesTensor:(MPSGraphTensor*)indices
                                     depth:(NSUInteger)depth
                                  dataType:(MPSDataType)dataType
                                   onValue:(double)onValue
                                  offValue:(double)offValue
                                      name:(NSString*)name {
  return [self oneHotWithIndicesTensor:indices
                                 depth:depth
                                  axis:static_cast<NSUInteger>(-1)
                              dataType:dataType
                               onValue:onValue
                              offValue:offValue
                                  name:name];
}
- (MPSGraphTensor*)oneHotWithIndicesTensor:(MPSGraphTensor*)indices
                                     depth:(NSUInteger)depth
                                      axis:(NSUInteger)axis
                                  dataType:(MPSDataType)dataType
                                      name:(NSString*)name {
  return [self oneHotWithIndicesTensor:indices
                                 depth:depth
                                  axis:axis
                              dataType:dataType
                               onValue:1
                              offValue:0
                                  name:name];
}
- (MPSGraphTensor*)oneHotWithIndicesTensor:(MPSGraphTensor*)indices
                                     depth:(NSUInteger)depth
                                      axis:(NSUInteger)axis
                                      name:(NSString*)name {
  return [self oneHotWithIndicesTensor:indices
                                 depth:depth
                                  axis:axis
                              dataType:MPSDataTypeFloat32
                                  name:name];
}
- (MPSGraphTensor*)oneHotWithIndicesTensor:(MPSGraphTensor*)indices
                                     depth:(NSUInteger)depth
                                  dataType:(MPSDataType)dataType
                                      name:(NSString*)name {
  return [self oneHotWithIndicesTensor:indices
                                 depth:depth
                                  axis:static_cast<NSUInteger>(-1)
                              dataType:dataType
                                  name:name];
}
- (MPSGraphTensor*)oneHotWithIndicesTensor:(MPSGraphTensor*)indices
                                     depth:(NSUInteger)depth
                                      name:(NSString*)name {
  return [self oneHotWithIndicesTensor:indices depth:depth dataType:MPSDataTypeFloat32 name:name];
}
@end

@implementation MPSGraph (MPSGraphSortOps)

- (MPSGraphTensor*)sortWithTensor:(MPSGraphTensor*)tensor
                             axis:(NSInteger)axis
                       descending:(BOOL)descending
                             name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::sort>(type_of(tensor), axis, descending), {tensor});
}
- (MPSGraphTensor*)sortWithTensor:(MPSGraphTensor*)tensor
                             axis:(NSInteger)axis
                             name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::sort>(type_of(tensor), axis, false), {tensor});
}
- (MPSGraphTensor*)argSortWithTensor:(MPSGraphTensor*)tensor
                                axis:(NSInteger)axis
                          descending:(BOOL)descending
                                name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::arg_sort>(type_of(tensor), axis, descending),
              {tensor});
}
- (MPSGraphTensor*)argSortWithTensor:(MPSGraphTensor*)tensor
                                axis:(NSInteger)axis
                                name:(NSString*)name {
  return emit(self, metalhost::made<metalhost::arg_sort>(type_of(tensor), axis, false), {tensor});
}
- (NSArray<MPSGraphTensor*>*)topKWithSourceTensor:(MPSGraphTensor*)source
                                                k:(NSUInteger)k
                                             name:(NSString*)name {
  return [self topKWithSourceTensor:source axis:-1 k:k name:name];
}
- (NSArray<MPSGraphTensor*>*)topKWithSourceTensor:(MPSGraphTensor*)source
                                             axis:(NSInteger)axis
                                                k:(NSUInteger)k
                                             name:(NSString*)name {
  return emit_all(self,
                  metalhost::made<metalhost::top_k>(type_of(source), axis, signed_from(k), true),
                  @[ source ]);
}
- (NSArray<MPSGraphTensor*>*)bottomKWithSourceTensor:(MPSGraphTensor*)source
                                                axis:(NSInteger)axis
                                                   k:(NSUInteger)k
                                                name:(NSString*)name {
  return emit_all(self,
                  metalhost::made<metalhost::top_k>(type_of(source), axis, signed_from(k), false),
                  @[ source ]);
}
@end
