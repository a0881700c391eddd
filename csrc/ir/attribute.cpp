#include "ir/attribute.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>

namespace lucid::ir {
namespace {

std::string quote(const std::string& bytes) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "\"";
  for (const char raw : bytes) {
    const auto byte = static_cast<unsigned char>(raw);
    if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\') {
      text += raw;
      continue;
    }
    text += "\\x";
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text + "\"";
}

std::string real_text(double value) {
  if (std::isnan(value)) return std::signbit(value) ? "-nan" : "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), result.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class T>
void append_bytes(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

struct Printer {
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return real_text(value); }
  std::string operator()(DType value) const { return std::string(name(value)); }
  std::string operator()(const std::string& value) const { return quote(value); }
  std::string operator()(const Ints& values) const {
    std::string text = "[";
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) text += ", ";
      text += std::to_string(values[i]);
    }
    return text + "]";
  }
};

struct KeyWriter {
  std::string& key;
  void operator()(bool value) const { key += value ? '\1' : '\0'; }
  void operator()(int64_t value) const { append_bytes(key, value); }
  void operator()(double value) const { append_bytes(key, std::bit_cast<uint64_t>(value)); }
  void operator()(DType value) const { key += static_cast<char>(value); }
  void operator()(const std::string& value) const {
    append_bytes(key, value.size());
    key += value;
  }
  void operator()(const Ints& values) const {
    append_bytes(key, values.size());
    for (const int64_t value : values) append_bytes(key, value);
  }
};

}  // namespace

bool fits(const AttrValue& value, AttrType type) {
  switch (type) {
    case AttrType::kBool:
      return std::holds_alternative<bool>(value);
    case AttrType::kInt:
      return std::holds_alternative<int64_t>(value);
    case AttrType::kFloat:
      return std::holds_alternative<double>(value);
    case AttrType::kNumber:
      return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value);
    case AttrType::kDType:
      return std::holds_alternative<DType>(value);
    case AttrType::kString:
      return std::holds_alternative<std::string>(value);
    case AttrType::kInts:
      return std::holds_alternative<Ints>(value);
  }
  return false;
}

std::string to_string(const AttrValue& value) { return std::visit(Printer{}, value); }

bool identical(const AttrValue& lhs, const AttrValue& rhs) {
  if (lhs.index() != rhs.index()) return false;
  if (const auto* real = std::get_if<double>(&lhs)) {
    return std::bit_cast<uint64_t>(*real) == std::bit_cast<uint64_t>(std::get<double>(rhs));
  }
  return lhs == rhs;
}

void append_key(std::string& key, const AttrValue& value) {
  key += static_cast<char>('a' + value.index());
  std::visit(KeyWriter{key}, value);
}

}  // namespace lucid::ir
