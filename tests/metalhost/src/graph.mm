// MPSGraph itself, its tensors, types and data.
#include <cstring>

#include "device.h"
#include "objects.h"

using metalhost::fail_assertion;
using metalhost::refuse;

namespace metalhost {

Shape shape_from(NSArray<NSNumber*>* numbers) {
  if (numbers == nil) fail_assertion("MPSGraph.mm", "a shape or list of numbers is nil");
  Shape shape;
  for (NSNumber* number in numbers) shape.push_back([number longLongValue]);
  return shape;
}

NSArray<NSNumber*>* numbers_from(const Shape& shape) {
  NSMutableArray<NSNumber*>* const numbers = [NSMutableArray arrayWithCapacity:shape.size()];
  for (const int64_t length : shape) [numbers addObject:[NSNumber numberWithLongLong:length]];
  return numbers;
}

const Value& value_of(MPSGraphTensor* tensor) {
  if (tensor == nil) fail_assertion("MPSGraph.mm", "an operand is nil");
  return state_of<TensorState>(tensor).value;
}

const Type& type_of(MPSGraphTensor* tensor) { return value_of(tensor).type(); }

std::vector<Type> types_of(NSArray<MPSGraphTensor*>* tensors) {
  std::vector<Type> types;
  for (MPSGraphTensor* tensor in tensors) types.push_back(type_of(tensor));
  return types;
}

NSArray<MPSGraphTensor*>* emit_all(MPSGraph* graph, Op op,
                                   const std::vector<MPSGraphTensor*>& inputs) {
  GraphState& state = state_of<GraphState>(graph);
  auto node = std::make_shared<Node>();
  for (MPSGraphTensor* input : inputs) {
    node->inputs.push_back(value_of(input));
    if (state_of<TensorState>(input).graph != &state) {
      refuse(op.name, "has an operand of another graph");
    }
  }
  for (const Type& type : op.outputs) check_tensor(op.name, type);
  node->op = std::move(op);
  node->order = state.nodes.size();
  state.nodes.push_back(node);
  NSMutableArray<MPSGraphTensor*>* const results = [NSMutableArray array];
  for (size_t i = 0; i < node->op.outputs.size(); ++i) {
    MPSGraphTensor* const tensor = [[MPSGraphTensor alloc] init];
    tensor->host_state_ = new TensorState({node, i}, &state);
    [results addObject:tensor];
    [tensor release];
  }
  [state.tensors.get() addObjectsFromArray:results];
  return results;
}

NSArray<MPSGraphTensor*>* emit_all(MPSGraph* graph, Op op, NSArray<MPSGraphTensor*>* inputs) {
  std::vector<MPSGraphTensor*> list;
  for (MPSGraphTensor* input in inputs) list.push_back(input);
  return emit_all(graph, std::move(op), list);
}

MPSGraphTensor* emit(MPSGraph* graph, Op op, std::initializer_list<MPSGraphTensor*> inputs) {
  return [emit_all(graph, std::move(op), std::vector<MPSGraphTensor*>(inputs)) objectAtIndex:0];
}

}  // namespace metalhost

@implementation MPSGraphObject
- (void)dealloc {
  delete host_state_;
  [super dealloc];
}
@end

@implementation MPSGraphType
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
@end

namespace {

struct ShapedTypeState : HostState {
  ShapedTypeState() : HostState(metalhost::Kind::kOther) {}

  metalhost::Ref<NSArray*> shape;
  MPSDataType dataType = MPSDataTypeInvalid;
};

}  // namespace

@implementation MPSGraphShapedType
- (instancetype)initWithShape:(MPSShape*)shape dataType:(MPSDataType)dataType {
  if ((self = [super init]) == nil) return nil;
  host_state_ = new ShapedTypeState;
  [self setShape:shape];
  [self setDataType:dataType];
  return self;
}
- (MPSShape*)shape {
  return state_of<ShapedTypeState>(self).shape.get();
}
- (void)setShape:(MPSShape*)shape {
  state_of<ShapedTypeState>(self).shape = metalhost::Ref<NSArray*>([[shape copy] autorelease]);
}
HOST_PROPERTY(ShapedTypeState, MPSDataType, dataType, setDataType)
- (BOOL)isEqualTo:(MPSGraphShapedType*)object {
  return [self dataType] == [object dataType] && [[self shape] isEqual:[object shape]];
}
@end

namespace {

struct DeviceState : HostState {
  explicit DeviceState(id<MTLDevice> d) : HostState(metalhost::Kind::kOther), device(d) {}

  metalhost::Ref<id<MTLDevice>> device;
};

}  // namespace

@implementation MPSGraphDevice
+ (instancetype)deviceWithMTLDevice:(id<MTLDevice>)metalDevice {
  if (metalDevice == nil) fail_assertion("MPSGraphDevice.mm", "metalDevice is nil");
  MPSGraphDevice* const device = [[[self alloc] init] autorelease];
  device->host_state_ = new DeviceState(metalDevice);
  return device;
}
- (MPSGraphDeviceType)type {
  return MPSGraphDeviceTypeMetal;
}
- (id<MTLDevice>)metalDevice {
  return state_of<DeviceState>(self).device.get();
}
@end

@implementation MPSGraphOperation
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];
}
@end

@implementation MPSGraphTensor
- (id)copyWithZone:(NSZone*)zone {
  return [self retain];  // identity is the key of dictionaries
}
- (MPSShape*)shape {
  const metalhost::Value& value = metalhost::value_of(self);
  return value.node->op.infers_late ? nil : metalhost::numbers_from(value.type().shape);
}
- (MPSDataType)dataType {
  return static_cast<MPSDataType>(metalhost::type_of(self).data_type);
}
@end

@implementation MPSGraphTensorData

- (instancetype)initWithMTLBuffer:(id<MTLBuffer>)buffer
                            shape:(MPSShape*)shape
                         dataType:(MPSDataType)dataType {
  if ((self = [super init]) == nil) return nil;
  if (buffer == nil) fail_assertion("MPSNDArray.mm", "Error: the buffer is nil");
  const metalhost::Type type{static_cast<metalhost::DataType>(dataType),
                             metalhost::shape_from(shape)};
  if (type.shape.empty()) fail_assertion("MPSNDArray.mm", "Error: a tensor data of rank 0");
  metalhost::check_tensor("tensor_data", type);
  if ([buffer length] < static_cast<NSUInteger>(type.size_bytes())) {
    fail_assertion("MPSNDArray.mm",
                   "[MPSNDArray initWithBufferImpl:offset:descriptor:] Error: buffer is not large "
                   "enough. Must be " +
                       std::to_string(type.size_bytes()) + " bytes");
  }
  host_state_ = new TensorDataState(buffer, type);
  return self;
}

- (instancetype)initWithDevice:(MPSGraphDevice*)device
                          data:(NSData*)data
                         shape:(MPSShape*)shape
                      dataType:(MPSDataType)dataType {
  id<MTLBuffer> const buffer = [[device metalDevice] newBufferWithBytes:[data bytes]
                                                                 length:[data length]
                                                                options:0];
  self = [self initWithMTLBuffer:buffer shape:shape dataType:dataType];
  [buffer release];
  return self;
}

- (MPSShape*)shape {
  return metalhost::numbers_from(state_of<TensorDataState>(self).type.shape);
}
- (MPSDataType)dataType {
  return static_cast<MPSDataType>(state_of<TensorDataState>(self).type.data_type);
}
- (MPSGraphDevice*)device {
  return [MPSGraphDevice deviceWithMTLDevice:[state_of<TensorDataState>(self).buffer.get() device]];
}
@end

@implementation MPSGraph
+ (instancetype)new {
  return [[self alloc] init];
}
- (instancetype)init {
  if ((self = [super init]) != nil) host_state_ = new GraphState;
  return self;
}
- (void)dealloc {
  GraphState& state = state_of<GraphState>(self);
  // Users before what they use, or a long chain would be destroyed recursively.
  [state.placeholders.get() removeAllObjects];
  while ([state.tensors.get() count] > 0) [state.tensors.get() removeLastObject];
  while (!state.nodes.empty()) state.nodes.pop_back();
  [super dealloc];
}
HOST_PROPERTY(GraphState, MPSGraphOptions, options, setOptions)
- (NSArray<MPSGraphTensor*>*)placeholderTensors {
  return state_of<GraphState>(self).placeholders.get();
}
- (MPSGraphExecutable*)compileWithDevice:(MPSGraphDevice*)device
                                   feeds:(MPSGraphTensorShapedTypeDictionary*)feeds
                           targetTensors:(NSArray<MPSGraphTensor*>*)targetTensors
                        targetOperations:(NSArray<MPSGraphOperation*>*)targetOperations
                   compilationDescriptor:(MPSGraphCompilationDescriptor*)compilationDescriptor {
  return metalhost::compile_graph(self, feeds, targetTensors, compilationDescriptor);
}
@end
