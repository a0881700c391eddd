// How exceptions find their handlers in .mm frames on hosts without Apple's SDK.
//
// clang gives each such frame __gnu_objc_personality_v0, and libobjc's version of it never enters a
// C++ catch clause. This hidden definition matches C++ types by `catch`, Objective-C classes by
// `@catch (NSException*)` and both by `catch (...)`, as on macOS. `@catch (id)` cannot be told from
// `catch (...)` and must not be used.
// Tables: Itanium C++ ABI, exception handling, and gcc/libobjc/exception.c.
#include <cxxabi.h>
#include <dlfcn.h>
#include <objc/objc.h>
#include <objc/runtime.h>
#include <unwind.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>

namespace {

// libstdc++: what lies before the unwind header of a C++ exception.
struct CxxException {
  std::type_info* type;
  void (*destructor)(void*);
  void (*unexpected)();
  void (*terminate)();
  void* next;
  int handler_count;
  int handler_switch;
  const unsigned char* action;
  const unsigned char* language_data;
  _Unwind_Ptr catch_temp;
  void* adjusted;
  _Unwind_Exception unwind;
};

// The same for an exception that std::rethrow_exception shares.
struct CxxDependentException {
  void* primary;
  void (*padding)(void*);
  void (*unexpected)();
  void (*terminate)();
  void* next;
  int handler_count;
  int handler_switch;
  const unsigned char* action;
  const unsigned char* language_data;
  _Unwind_Ptr catch_temp;
  void* adjusted;
  _Unwind_Exception unwind;
};
static_assert(sizeof(CxxException) == sizeof(CxxDependentException), "one layout for both");

struct ObjcException {
  _Unwind_Exception unwind;
  id value;
};

constexpr uint64_t kCxxClass = 0x474e5543432b2b00;           // "GNUCC++\0"
constexpr uint64_t kCxxDependentClass = 0x474e5543432b2b01;  // "GNUCC++\1"
constexpr uint64_t kObjcClass = 0x474e55434f424a43;          // "GNUCOBJC"

constexpr uint8_t kOmitted = 0xff;  // DW_EH_PE_omit

bool is_cxx(uint64_t exception_class) {
  return exception_class == kCxxClass || exception_class == kCxxDependentClass;
}

uint64_t read_uleb(const uint8_t*& at) {
  uint64_t value = 0;
  unsigned shift = 0;
  uint8_t byte = 0;
  do {
    byte = *at++;
    value |= uint64_t(byte & 0x7f) << shift;
    shift += 7;
  } while ((byte & 0x80) != 0);
  return value;
}

int64_t read_sleb(const uint8_t*& at) {
  int64_t value = 0;
  unsigned shift = 0;
  uint8_t byte = 0;
  do {
    byte = *at++;
    value |= int64_t(byte & 0x7f) << shift;
    shift += 7;
  } while ((byte & 0x80) != 0);
  if ((byte & 0x40) != 0 && shift < 64) value |= -(int64_t(1) << shift);
  return value;
}

template <class T>
T read_raw(const uint8_t*& at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  at += sizeof value;
  return value;
}

uintptr_t read_value(uint8_t format, const uint8_t*& at) {
  switch (format) {
    case 0x00:
      return read_raw<uintptr_t>(at);
    case 0x01:
      return read_uleb(at);
    case 0x02:
      return read_raw<uint16_t>(at);
    case 0x03:
      return read_raw<uint32_t>(at);
    case 0x04:
      return read_raw<uint64_t>(at);
    case 0x09:
      return uintptr_t(read_sleb(at));
    case 0x0a:
      return uintptr_t(intptr_t(read_raw<int16_t>(at)));
    case 0x0b:
      return uintptr_t(intptr_t(read_raw<int32_t>(at)));
    case 0x0c:
      return uintptr_t(read_raw<int64_t>(at));
    default:
      std::abort();
  }
}

// A pointer in one of the DW_EH_PE encodings.
uintptr_t read_pointer(uint8_t encoding, const uint8_t*& at, uintptr_t function_start) {
  if (encoding == kOmitted) return 0;
  const uint8_t* const start = at;
  uintptr_t value = read_value(encoding & 0x0f, at);
  if (value == 0) return 0;
  switch (encoding & 0x70) {
    case 0x00:
      break;
    case 0x10:  // relative to its own place
      value += reinterpret_cast<uintptr_t>(start);
      break;
    case 0x40:
      value += function_start;
      break;
    default:
      std::abort();
  }
  return (encoding & 0x80) != 0 ? *reinterpret_cast<uintptr_t*>(value) : value;
}

int64_t pointer_size(uint8_t encoding) {
  switch (encoding & 0x07) {
    case 0x00:
    case 0x04:
      return 8;
    case 0x02:
      return 2;
    case 0x03:
      return 4;
    default:
      std::abort();
  }
}

// A type entry is a std::type_info, whose first word is the vtable of one of the ABI's type_info
// classes, or the bytes of an Objective-C class name.
__attribute__((no_sanitize("address", "undefined"))) bool is_type_info(uintptr_t entry) {
  struct Local {};
  struct Derived : virtual std::exception {};
  const std::type_info* const kinds[] = {
      &typeid(Local),  &typeid(std::bad_exception),  &typeid(Derived), &typeid(int),
      &typeid(int*),   &typeid(_Unwind_Reason_Code), &typeid(int()),   &typeid(int Local::*),
      &typeid(int[1]),
  };
  const void* first = nullptr;
  std::memcpy(&first, reinterpret_cast<const void*>(entry), sizeof first);
  for (const std::type_info* kind : kinds) {
    if (first == *reinterpret_cast<const void* const*>(kind)) return true;
  }
  return false;
}

bool objc_matches(id value, const char* name) {
  if (std::strcmp(name, "@id") == 0) return true;
  const Class wanted = (Class)objc_lookUpClass(name);
  if (wanted == nullptr || value == nullptr) return false;
  for (Class type = object_getClass(value); type != nullptr; type = class_getSuperclass(type)) {
    if (type == wanted) return true;
  }
  return false;
}

struct Match {
  bool hit = false;
  bool as_object = false;
  void* adjusted = nullptr;
};

Match match(uintptr_t type, _Unwind_Exception* header, uint64_t exception_class) {
  Match result;
  if (is_cxx(exception_class)) {
    auto* exception = reinterpret_cast<CxxException*>(header + 1) - 1;
    void* thrown = header + 1;
    if (exception_class == kCxxDependentClass) {
      thrown = reinterpret_cast<CxxDependentException*>(exception)->primary;
      exception = static_cast<CxxException*>(thrown) - 1;
    }
    if (exception->type->__is_pointer_p()) thrown = *static_cast<void**>(thrown);
    result.adjusted = thrown;
    result.hit = type == 0 ||
                 (is_type_info(type) && reinterpret_cast<const std::type_info*>(type)->__do_catch(
                                            exception->type, &result.adjusted, 1));
    return result;
  }
  if (exception_class == kObjcClass && type != 0) {
    result.hit = result.as_object =
        !is_type_info(type) && objc_matches(reinterpret_cast<ObjcException*>(header)->value,
                                            reinterpret_cast<const char*>(type));
    return result;
  }
  result.hit = type == 0;  // catch (...)
  return result;
}

/// What a frame does about an exception.
struct Plan {
  bool handles = false;
  bool cleans_up = false;
  uintptr_t landing_pad = 0;
  int64_t filter = 0;
  bool as_object = false;
  void* adjusted = nullptr;
};

struct TypeTable {
  const uint8_t* end;
  uint8_t encoding;
};

// Follows the chain of actions of one call site.
void follow_actions(const uint8_t* action, const TypeTable& types, _Unwind_Exception* header,
                    uint64_t exception_class, bool forced, Plan& plan) {
  for (;;) {
    const int64_t filter = read_sleb(action);
    const uint8_t* const link = action;
    const int64_t next = read_sleb(action);
    if (filter == 0) {
      plan.cleans_up = true;
    } else if (filter > 0 && !forced) {
      const uint8_t* entry = types.end - filter * pointer_size(types.encoding);
      const Match found = match(read_pointer(types.encoding, entry, 0), header, exception_class);
      if (found.hit) {
        plan.handles = true;
        plan.filter = filter;
        plan.as_object = found.as_object;
        plan.adjusted = found.adjusted;
        return;
      }
    }
    if (next == 0) return;
    action = link + next;
  }
}

// Reads the frame's language data: header, call sites, actions, types.
Plan scan(_Unwind_Context* context, const uint8_t* at, _Unwind_Exception* header,
          uint64_t exception_class, bool forced) {
  Plan plan;
  const uintptr_t function_start = _Unwind_GetRegionStart(context);
  const uint8_t pad_encoding = *at++;
  const uintptr_t pad_start =
      pad_encoding == kOmitted ? function_start : read_pointer(pad_encoding, at, function_start);
  TypeTable types{nullptr, *at++};
  if (types.encoding != kOmitted) {
    const uint64_t offset = read_uleb(at);
    types.end = at + offset;
  }
  const uint8_t site_encoding = *at++;
  const uint64_t sites_bytes = read_uleb(at);
  const uint8_t* const actions = at + sites_bytes;
  int before_instruction = 0;
  uintptr_t instruction = _Unwind_GetIPInfo(context, &before_instruction);
  if (before_instruction == 0) --instruction;
  const uintptr_t position = instruction - function_start;
  while (at < actions) {
    const uintptr_t start = read_pointer(site_encoding, at, 0);
    const uintptr_t length = read_pointer(site_encoding, at, 0);
    const uintptr_t pad = read_pointer(site_encoding, at, 0);
    const uint64_t action = read_uleb(at);
    if (position < start) break;
    if (position >= start + length) continue;
    if (pad == 0) return plan;
    plan.landing_pad = pad_start + pad;
    if (action == 0) {
      plan.cleans_up = true;
    } else {
      follow_actions(actions + action - 1, types, header, exception_class, forced, plan);
    }
    return plan;
  }
  std::terminate();  // no call site: nothing may leave this frame
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) _Unwind_Reason_Code __gnu_objc_personality_v0(
    int version, _Unwind_Action actions, _Unwind_Exception_Class exception_class,
    _Unwind_Exception* header, _Unwind_Context* context) {
  if (version != 1 || header == nullptr || context == nullptr) return _URC_FATAL_PHASE1_ERROR;
  const auto* data = reinterpret_cast<const uint8_t*>(_Unwind_GetLanguageSpecificData(context));
  if (data == nullptr) return _URC_CONTINUE_UNWIND;
  const bool forced = (actions & _UA_FORCE_UNWIND) != 0;
  const Plan plan = scan(context, data, header, exception_class, forced);
  if ((actions & _UA_SEARCH_PHASE) != 0) {
    if (!plan.handles) return _URC_CONTINUE_UNWIND;
    if (is_cxx(exception_class)) {
      (reinterpret_cast<CxxException*>(header + 1) - 1)->adjusted = plan.adjusted;
    }
    return _URC_HANDLER_FOUND;
  }
  const bool enters = (actions & _UA_HANDLER_FRAME) != 0;
  const bool stops_here = enters ? plan.handles : plan.cleans_up || plan.handles;
  if (!stops_here || plan.landing_pad == 0) return _URC_CONTINUE_UNWIND;
  void* object = header;
  if (enters && plan.as_object) {  // @catch gets the object; the header has done its work
    object = reinterpret_cast<ObjcException*>(header)->value;
    _Unwind_DeleteException(header);
  }
  _Unwind_SetGR(context, __builtin_eh_return_data_regno(0), reinterpret_cast<_Unwind_Word>(object));
  _Unwind_SetGR(context, __builtin_eh_return_data_regno(1), enters ? _Unwind_Word(plan.filter) : 0);
  _Unwind_SetIP(context, plan.landing_pad);
  return _URC_INSTALL_CONTEXT;
}

// @finally throws again what its landing pad got: here an unwind header, where libobjc's own
// personality would hand over the object. The first word tells the two apart.
extern "C" __attribute__((visibility("hidden"), noreturn)) void host_objc_throw(void* what) __asm__(
    "objc_exception_throw");
extern "C" void host_objc_throw(void* what) {
  uint64_t first = 0;
  if (what != nullptr) std::memcpy(&first, what, sizeof first);
  if (first == kObjcClass || is_cxx(first)) {
    _Unwind_Resume_or_Rethrow(static_cast<_Unwind_Exception*>(what));
    std::terminate();
  }
  static const auto real_throw = reinterpret_cast<void (*)(void*)>(
      dlsym(dlopen("libobjc.so.4", RTLD_LAZY | RTLD_NOLOAD), "objc_exception_throw"));
  real_throw(what);
  std::abort();
}
