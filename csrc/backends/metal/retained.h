// Ownership of Objective-C objects without ARC, and the guard of every entry into Apple's code.
#pragma once

#import <Foundation/Foundation.h>

#include <string>
#include <utility>

#include "support/errors.h"

#if defined(__has_feature)
#if __has_feature(objc_arc)
#error "compile with -fno-objc-arc"
#endif
#endif

namespace lucid::metal {

/// Owns one reference. T is an object pointer type: MPSGraph*, id<MTLBuffer>.
template <class T>
class Retained {
 public:
  Retained() = default;
  /// Takes over the reference that alloc, new and copy gave.
  static Retained adopt(T object) {
    Retained result;
    result.object_ = object;
    return result;
  }
  /// Adds a reference to an object that everything else returned.
  static Retained share(T object) { return adopt([object retain]); }

  Retained(const Retained& other) : object_([other.object_ retain]) {}
  Retained(Retained&& other) noexcept : object_(std::exchange(other.object_, nil)) {}
  Retained& operator=(Retained other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Retained() { [object_ release]; }  // messaging nil is a no-op

  T get() const { return object_; }
  explicit operator bool() const { return object_ != nil; }

 private:
  T object_ = nil;
};

/// Frees what is handed out without ownership while it lives, also when an exception leaves it.
class AutoreleasePool {
 public:
  AutoreleasePool() : pool_([[NSAutoreleasePool alloc] init]) {}
  ~AutoreleasePool() { [pool_ drain]; }
  AutoreleasePool(const AutoreleasePool&) = delete;
  AutoreleasePool& operator=(const AutoreleasePool&) = delete;

 private:
  NSAutoreleasePool* pool_;
};

/// The text of a string that may be nil.
inline std::string text_of(NSString* string) {
  const char* text = [string UTF8String];
  return text == nullptr ? "" : text;
}

/// Runs `body` inside a pool; an Objective-C exception becomes an InternalError that starts with
/// `what`. The result must own what it refers to.
template <class Body>
auto guarded(const char* what, Body&& body) -> decltype(body()) {
  const AutoreleasePool pool;
  std::string reason;
  @try {
    return body();
  } @catch (NSException* exception) {
    reason = text_of([exception name]) + ", " + text_of([exception reason]);
  }
  throw Error(ErrorKind::kInternal, std::string(what) + ": Metal refused: " + reason);
}

}  // namespace lucid::metal
