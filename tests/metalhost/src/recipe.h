// How the operations of a graph were made, as bytes: what a package of the double holds.
//
// `made<select>(...)` calls ops.h's select and notes the call, so that it can be made again.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "node.h"
#include "ops.h"
#include "refuse.h"

namespace metalhost {

// The fields of what calls take, in order.
inline auto fields(Type& v) { return std::tie(v.data_type, v.shape); }
inline auto fields(SliceRange& v) {
  return std::tie(v.starts, v.ends, v.strides, v.start_mask, v.end_mask, v.squeeze_mask);
}
inline auto fields(Convolution& v) {
  return std::tie(v.strides, v.dilations, v.pads_before, v.pads_after, v.groups, v.padding_style,
                  v.channels_last, v.weights_last);
}
inline auto fields(Pooling& v) {
  return std::tie(v.kernel, v.strides, v.dilations, v.pads_before, v.pads_after, v.padding_style,
                  v.ceil_mode, v.includes_padding, v.indices_mode, v.indices_type);
}

template <class T>
constexpr bool is_plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

/// Appends values to bytes.
class Writer {
 public:
  template <class T>
  void put(T value) {
    if constexpr (is_plain<T>) {
      const auto* bytes = reinterpret_cast<const char*>(&value);
      bytes_.append(bytes, sizeof(T));
    } else {
      std::apply([&](auto&... field) { (put(field), ...); }, fields(value));
    }
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(static_cast<uint64_t>(values.size()));
    for (const T& value : values) put(value);
  }
  void put(const std::string& text) { put(std::vector<char>(text.begin(), text.end())); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

/// Reads values back. Ends the process, as the framework does, where the bytes end too early.
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}

  template <class T>
  T get() {
    T value{};
    get(value);
    return value;
  }
  bool at_end() const { return place_ == bytes_.size(); }

 private:
  template <class T>
  void get(T& value) {
    if constexpr (is_plain<T>) {
      take(&value, sizeof(T));
    } else {
      std::apply([&](auto&... field) { (get(field), ...); }, fields(value));
    }
  }
  template <class T>
  void get(std::vector<T>& values) {
    const auto count = get<uint64_t>();
    if (count > bytes_.size() - place_) fail_assertion("MPSGraphPackage.mm", "Error: bad length");
    for (uint64_t i = 0; i < count; ++i) values.push_back(get<T>());
  }
  void get(std::string& text) {
    const auto letters = get<std::vector<char>>();
    text.assign(letters.begin(), letters.end());
  }
  void take(void* to, size_t size) {
    if (size > bytes_.size() - place_)
      fail_assertion("MPSGraphPackage.mm", "Error: file too short");
    std::memcpy(to, bytes_.data() + place_, size);
    place_ += size;
  }

  const std::string& bytes_;
  size_t place_ = 0;
};

/// Calls a function of ops.h, also from bytes.
template <auto F>
struct Recipe;

template <class... P, Op (*F)(P...)>
struct Recipe<F> {
  static Op make(const std::decay_t<P>&... args) {
    Op op = F(args...);
    Writer writer;
    (writer.put(args), ...);
    op.recipe = {&again, writer.bytes()};
    return op;
  }
  static Op again(Reader& reader) {
    std::tuple<std::decay_t<P>...> args{reader.get<std::decay_t<P>>()...};  // in order: braces
    return std::apply(&make, args);
  }
};

template <auto F>
constexpr auto made = &Recipe<F>::make;

/// Place of a function of ops.h in the list of all.
uint32_t index_of(MakeAgain again);
MakeAgain make_again_at(uint32_t index);

}  // namespace metalhost
