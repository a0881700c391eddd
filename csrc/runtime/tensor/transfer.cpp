#include "runtime/tensor/transfer.h"

#include <cstring>
#include <string>
#include <utility>

#include "backends/backend.h"
#include "runtime/autograd/node.h"
#include "runtime/process.h"
#include "support/errors.h"

namespace lucid::runtime {
namespace {

Value moved(const Value& value, Device device) {
  backends::Backend& backend = backends::backend_for(device);
  const int64_t size = value.type.size_bytes();
  Value result{.type = value.type, .device = device, .buffer = backend.allocate(size)};
  if (size == 0) return result;
  const HostPause pause(true);  // the source may have to be waited for
  std::memcpy(result.buffer->data(), value.buffer->data(), static_cast<size_t>(size));
  return result;
}

// The gradient of a copy is a copy to the device of the source.
class TransferNode final : public GradNode {
 public:
  TransferNode(Edge source, Device device) : GradNode({std::move(source)}), device_(device) {}
  std::string name() const override { return "to_backward"; }
  size_t num_outputs() const override { return 1; }

  Gradients apply(const Gradients& grads, const BackwardMode& mode) override {
    Gradients result(1);
    if (!grads.front()) return result;
    const Variable& grad = *grads.front();
    Variable& back = result.front().emplace();
    back.value = moved(grad.value, device_);
    const bool is_recorded = mode.create_graph && grad.edge;
    if (is_recorded) back.edge = {std::make_shared<TransferNode>(grad.edge, grad.value.device), 0};
    return result;
  }

 private:
  Device device_;
};

}  // namespace

TensorRef to_device(const TensorRef& tensor, Device device) {
  const Device from = tensor->device();
  if (from == device) return tensor;
  backends::backend_for(device);  // refuses a device that does not exist
  if (tensor->is_symbolic() || thread_state().recorder != nullptr) {
    throw Error(ErrorKind::kTrace, "to: a copy from " + std::string(name(from)) + " to " +
                                       std::string(name(device)) +
                                       " cannot be compiled; move the tensor before the step");
  }
  if (device == Device::kMetal && tensor->type().dtype == DType::kFloat64) {
    throw Error(ErrorKind::kUnsupported,
                "to: dtype does not exist on metal: float64; cast to float32 first");
  }
  const Variable source = tensor->operand();
  Variable result{.value = moved(source.value, device)};
  if (thread_state().grad_enabled && source.edge) {
    result.edge = {std::make_shared<TransferNode>(source.edge, from), 0};
  }
  return make_tensor(std::move(result));
}

}  // namespace lucid::runtime
