// The one exception type of the core; its kind picks the Python class.
#pragma once

#include <stdexcept>
#include <string>

namespace lucid {

/// Who is to blame, and how Python names it.
enum class ErrorKind {
  kUser,               ///< lucid.UserError (ValueError)
  kShape,              ///< lucid.ShapeError (UserError)
  kDType,              ///< lucid.DtypeError (UserError, TypeError)
  kType,               ///< lucid.ArgumentTypeError (UserError, TypeError)
  kIndex,              ///< lucid.OutOfRangeError (UserError, IndexError)
  kDevice,             ///< lucid.DeviceError (UserError): tensors on two devices
  kDeviceUnavailable,  ///< lucid.DeviceUnavailableError (Error, RuntimeError)
  kAutograd,           ///< lucid.AutogradError (UserError, RuntimeError)
  kTrace,              ///< lucid.TraceError (Error, RuntimeError)
  kUnsupported,        ///< lucid.UnsupportedError (Error, NotImplementedError)
  kOutOfMemory,        ///< lucid.OutOfMemoryError (Error, MemoryError)
  kInternal,           ///< lucid.InternalError (Error, RuntimeError)
};

/// An error with a message of the form `<op>: <what is wrong>: <values found>; <remedy>`.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace lucid
