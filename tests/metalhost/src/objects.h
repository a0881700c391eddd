// What the Objective-C classes of the double share: their state, and how a builder method of
// MPSGraph records a node.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "node.h"
#include "process.h"
#include "refuse.h"

namespace metalhost {

/// A strong reference to an object.
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T object) : object_([object retain]) {}
  Ref(const Ref& other) : object_([other.object_ retain]) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { [object_ release]; }
  T get() const { return object_; }

 private:
  T object_ = nil;
};

/// For ivars: counts the object from its allocation on.
template <Kind kind>
struct CountedAs : Counted {
  CountedAs() : Counted(kind) {}
};

Shape shape_from(NSArray<NSNumber*>* numbers);
NSArray<NSNumber*>* numbers_from(const Shape& shape);

const Value& value_of(MPSGraphTensor* tensor);
const Type& type_of(MPSGraphTensor* tensor);
std::vector<Type> types_of(NSArray<MPSGraphTensor*>* tensors);

/// Records a node; the graph owns the tensors of its results.
NSArray<MPSGraphTensor*>* emit_all(MPSGraph* graph, Op op,
                                   const std::vector<MPSGraphTensor*>& inputs);
NSArray<MPSGraphTensor*>* emit_all(MPSGraph* graph, Op op, NSArray<MPSGraphTensor*>* inputs);
MPSGraphTensor* emit(MPSGraph* graph, Op op, std::initializer_list<MPSGraphTensor*> inputs);

/// An executable of what the targets need; its feeds and targets stand in an order of its own.
MPSGraphExecutable* compile_graph(MPSGraph* graph, MPSGraphTensorShapedTypeDictionary* feeds,
                                  NSArray<MPSGraphTensor*>* targets,
                                  MPSGraphCompilationDescriptor* descriptor);

}  // namespace metalhost

/// The C++ side of an object; the object's class knows the derived type.
struct HostState {
  explicit HostState(metalhost::Kind kind) : counted(kind) {}
  HostState(const HostState&) = default;
  HostState& operator=(const HostState&) = delete;
  virtual ~HostState() = default;
  virtual HostState* clone() const { return nullptr; }

  metalhost::Counted counted;
};

template <class State, class Object>
State& state_of(Object* object) {
  return static_cast<State&>(*object->host_state_);
}

struct GraphState : HostState {
  GraphState() : HostState(metalhost::Kind::kGraph) {}

  std::vector<std::shared_ptr<metalhost::Node>> nodes;
  metalhost::Ref<NSMutableArray*> tensors{[NSMutableArray array]};
  metalhost::Ref<NSMutableArray*> placeholders{[NSMutableArray array]};
  MPSGraphOptions options = MPSGraphOptionsDefault;
};

struct TensorState : HostState {
  TensorState(metalhost::Value v, const GraphState* g)
      : HostState(metalhost::Kind::kTensor), value(std::move(v)), graph(g) {}

  metalhost::Value value;
  const GraphState* graph;  // not owned, only compared
};

struct TensorDataState : HostState {
  TensorDataState(id<MTLBuffer> b, metalhost::Type t)
      : HostState(metalhost::Kind::kTensorData), buffer(b), type(std::move(t)) {}

  metalhost::Ref<id<MTLBuffer>> buffer;
  metalhost::Type type;
};

/// Accessors of a property that is a field of the same name.
#define HOST_PROPERTY(State, PropertyType, getter, setter) \
  -(PropertyType)getter {                                  \
    return state_of<State>(self).getter;                   \
  }                                                        \
  -(void)setter : (PropertyType)value {                    \
    state_of<State>(self).getter = value;                  \
  }

/// init and copyWithZone: of a class whose state is default constructible.
#define HOST_DESCRIPTOR(State)                                       \
  -(instancetype)init {                                              \
    if ((self = [super init]) != nil) host_state_ = new State;       \
    return self;                                                     \
  }                                                                  \
  -(id)copyWithZone : (NSZone*)zone {                                \
    MPSGraphObject* copy = [[[self class] allocWithZone:zone] init]; \
    delete copy->host_state_;                                        \
    copy->host_state_ = host_state_->clone();                        \
    return copy;                                                     \
  }
