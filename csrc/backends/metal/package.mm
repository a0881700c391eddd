#include "backends/metal/package.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

#include "backends/metal/gpu.h"
#include "backends/metal/lowering_id.h"
#include "support/half.h"

namespace lucid::metal {
namespace {

constexpr int64_t kMaxSamples = 16;
constexpr double kTolerance = 1e-3;  // of the largest number: other kernels may be chosen

/// A well mixed number (the finalizer of MurmurHash3).
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
  return x ^ (x >> 33);
}

/// In [0, 1).
double fraction(uint64_t x) { return static_cast<double>(mixed(x) >> 11) * 0x1p-53; }

// Small enough that dozens of layers do not overflow, positive for roots and logarithms.
float number_of(size_t place, size_t element) {
  const double scale = 1 + fraction(place + 1);
  return static_cast<float>(0x1p-7 * scale * (1 + fraction((place << 32) + element)));
}

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

void put_element(std::string& bytes, DType dtype, size_t place, size_t element) {
  if (dtype == DType::kFloat32) return put(bytes, number_of(place, element));
  if (dtype == DType::kFloat16) return put(bytes, to_float16(number_of(place, element)).bits);
  if (dtype == DType::kBFloat16) return put(bytes, to_bfloat16(number_of(place, element)).bits);
  const auto bit = static_cast<char>(mixed((place << 32) + element) & 1);
  bytes += bit;
  bytes.append(static_cast<size_t>(size_bytes(dtype)) - 1, '\0');  // little endian
}

template <class T>
T element_at(const void* data, int64_t place) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + place * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

double as_double(const void* data, DType dtype, int64_t place) {
  switch (dtype) {
    case DType::kFloat32:
      return element_at<float>(data, place);
    case DType::kFloat16:
      return to_float(element_at<Float16>(data, place));
    case DType::kBFloat16:
      return to_float(element_at<BFloat16>(data, place));
    case DType::kInt64:
      return static_cast<double>(element_at<int64_t>(data, place));
    case DType::kInt32:
      return element_at<int32_t>(data, place);
    case DType::kInt16:
      return element_at<int16_t>(data, place);
    case DType::kInt8:
      return element_at<int8_t>(data, place);
    default:
      return element_at<uint8_t>(data, place);
  }
}

bool are_distinct(const std::vector<size_t>& places, size_t count) {
  std::vector<bool> seen(count, false);
  for (const size_t place : places) {
    if (place >= count || seen[place]) return false;
    seen[place] = true;
  }
  return true;
}

template <class T>
void put_list(std::ostream& stream, const std::vector<T>& list) {
  stream << list.size();
  for (const T value : list) stream << ' ' << std::bit_cast<uint64_t>(value);
  stream << '\n';
}

template <class T>
bool get_list(std::istream& stream, std::vector<T>& list, size_t most) {
  size_t count = 0;
  if (!(stream >> count) || count > most) return false;
  for (; count > 0; --count) {
    uint64_t bits = 0;
    if (!(stream >> bits)) return false;
    list.push_back(std::bit_cast<T>(bits));
  }
  return true;
}

NSURL* package_url(const std::filesystem::path& files) {
  const std::string path = (files / "graph.mpsgraphpackage").string();
  return [NSURL fileURLWithPath:[NSString stringWithUTF8String:path.c_str()] isDirectory:YES];
}

}  // namespace

std::string to_text(const PackageNotes& notes) {
  std::ostringstream stream;
  put_list(stream, notes.order.feeds);
  put_list(stream, notes.order.targets);
  for (const auto& samples : notes.samples) put_list(stream, samples);
  return stream.str();
}

std::optional<PackageNotes> parse_notes(const std::string& text, size_t num_feeds,
                                        size_t num_targets) {
  std::istringstream stream(text);
  PackageNotes notes;
  const bool has_order = get_list(stream, notes.order.feeds, num_feeds) &&
                         get_list(stream, notes.order.targets, num_targets) &&
                         are_distinct(notes.order.feeds, num_feeds) &&
                         notes.order.targets.size() == num_targets &&
                         are_distinct(notes.order.targets, num_targets);
  if (!has_order) return std::nullopt;
  for (size_t i = 0; i < num_targets; ++i) {
    if (!get_list(stream, notes.samples.emplace_back(), kMaxSamples)) return std::nullopt;
  }
  return notes;
}

std::string made_up(const ValueType& type, size_t place) {
  std::string bytes;
  bytes.reserve(static_cast<size_t>(type.size_bytes()));
  const auto count = static_cast<size_t>(type.num_elements());
  for (size_t i = 0; i < count; ++i) put_element(bytes, type.dtype, place, i);
  return bytes;
}

std::vector<double> sampled(const void* data, const ValueType& type) {
  const int64_t size = type.num_elements();
  const int64_t count = std::min(size, kMaxSamples);
  std::vector<double> samples;
  for (int64_t i = 0; i < count; ++i) {
    const double value = as_double(data, type.dtype, i * size / count);
    samples.push_back(std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN());
  }
  return samples;
}

bool tell_something(const Samples& samples) {
  return std::ranges::any_of(samples, [](const std::vector<double>& target) {
    return std::ranges::any_of(target, [](double x) { return x != 0 && !std::isnan(x); });
  });
}

bool agree(const Samples& found, const Samples& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (found[i].size() != expected[i].size()) return false;
    double largest = 0;
    for (const double x : expected[i]) largest = std::fmax(largest, std::fabs(x));
    for (size_t j = 0; j < expected[i].size(); ++j) {
      if (std::isnan(expected[i][j]) != std::isnan(found[i][j])) return false;
      if (std::fabs(found[i][j] - expected[i][j]) > kTolerance * largest) return false;
    }
  }
  return true;
}

backends::DiskCache::Key disk_key(const ir::Graph& graph, const LoweringOptions& options) {
  const std::string system = guarded("metal: system", [] {
    return text_of([[NSProcessInfo processInfo] operatingSystemVersionString]);
  });
  const std::string platform = std::string("lucid ") + lowering_id() + ", " + Gpu::get().name() +
                               ", " + system + ", level 0";
  const std::string splits = options.splits_long_products ? "splits;" : "";
  return {platform, splits + ir::structure_key(graph)};
}

void write_package(MPSGraphExecutable* executable, const std::filesystem::path& files) {
  [executable serializeToMPSGraphPackageAtURL:package_url(files) descriptor:nil];
}

Retained<MPSGraphExecutable*> read_package(const std::filesystem::path& files,
                                           MPSGraphCompilationDescriptor* descriptor) {
  return Retained<MPSGraphExecutable*>::adopt([[MPSGraphExecutable alloc]
      initWithMPSGraphPackageAtURL:package_url(files)
             compilationDescriptor:descriptor]);
}

}  // namespace lucid::metal
