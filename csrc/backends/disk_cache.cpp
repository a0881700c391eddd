#include "backends/disk_cache.h"

#include <signal.h>
#include <unistd.h>

#ifdef __APPLE__
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "backends/notices.h"

namespace lucid::backends {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMagic = "lucid executable 1\n";
constexpr const char* kEntrySuffix = ".lucid";
constexpr const char* kIndex = "entry";  // the file that lists the others
constexpr const char* kFiles = "files";  // the folder of what the backend wrote
constexpr const char* kTrying = ".trying.";
constexpr const char* kUnfinished = ".unfinished.";
constexpr const char* kRefused = "refused.";
// What is older is not being written any more, on whatever host.
constexpr std::chrono::hours kLongestWrite{24};

std::atomic<int64_t> num_hits;
std::atomic<int64_t> num_misses;
std::atomic<int64_t> num_writes;

/// FNV-1a. Against damage, not against forgery: the folder is as trusted as the package itself.
class Checksum {
 public:
  explicit Checksum(uint64_t start = 0xcbf29ce484222325u) : value_(start) {}
  Checksum& add(const std::string& bytes) {
    for (const char byte : bytes) {
      value_ = (value_ ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
    }
    return *this;
  }
  std::string text() const {
    std::ostringstream stream;
    stream << std::hex << value_;
    return stream.str();
  }

 private:
  uint64_t value_;
};

/// Names a file; the whole key stands inside the entry and is compared.
std::string name_of(const std::string& text) {
  return Checksum().add(text).text() + "-" + Checksum(0x9e3779b97f4a7c15u).add(text).text();
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

/// Where process ids mean what they mean here: the host since it was started, and on Linux the
/// namespace of ids. Empty where nothing tells.
std::string process_space() {
  std::string start;
#ifdef __APPLE__
  std::array<char, 64> session{};
  size_t size = session.size() - 1;
  if (sysctlbyname("kern.bootsessionuuid", session.data(), &size, nullptr, 0) != 0) return {};
  start = session.data();
#else
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::error_code failure;
  const fs::path ids = fs::read_symlink("/proc/self/ns/pid", failure);
  if (boot.empty() || failure) return {};
  start = boot + ' ' + ids.string();
#endif
  return name_of(host_name() + ' ' + start);
}

/// Process, a random number and process space: no name comes twice, whatever host draws it.
std::string unique_name() {
  std::random_device draw;
  return std::to_string(getpid()) + "." + std::to_string(draw()) + std::to_string(draw()) + "." +
         process_space();
}

/// True if the process that a name of unique_name() belongs to has certainly ended: of another
/// process space none has.
bool is_of_the_dead(const std::string& unique) {
  const std::string space = process_space();
  if (space.empty() || !unique.ends_with('.' + space)) return false;
  const long process = std::atol(unique.c_str());
  return process > 0 && kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH;
}

/// True if nobody can still be at work on what stands at that path.
bool is_abandoned(const fs::path& path, const std::string& unique) {
  if (is_of_the_dead(unique)) return true;
  std::error_code failure;
  const auto changed = fs::last_write_time(path, failure);
  return !failure && fs::file_time_type::clock::now() - changed > kLongestWrite;
}

std::optional<std::string> read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (file.bad()) return std::nullopt;
  return bytes;
}

bool write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  file.close();
  return !file.fail();
}

void erase(const fs::path& path) {
  std::error_code failure;  // somebody else may have been faster
  fs::remove_all(path, failure);
}

bool is_there(const fs::path& path) {
  std::error_code failure;
  return fs::exists(path, failure);
}

/// Paths of what a folder holds; none where it cannot be read.
std::vector<fs::path> listed(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    paths.push_back(it->path());
  }
  std::ranges::sort(paths);
  return paths;
}

/// Regular files below a folder, as paths relative to it.
std::vector<fs::path> files_below(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code failure;
  for (fs::recursive_directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    std::error_code gone;
    if (fs::is_regular_file(it->path(), gone))
      paths.push_back(it->path().lexically_relative(folder));
  }
  std::ranges::sort(paths);
  return paths;
}

int64_t bytes_below(const fs::path& folder) {
  int64_t total = 0;
  for (const fs::path& path : files_below(folder)) {
    std::error_code failure;
    const auto size = fs::file_size(folder / path, failure);
    if (!failure) total += static_cast<int64_t>(size);
  }
  return total;
}

// The index: magic, key, notes, then size and checksum of every file, then its own checksum.
class IndexWriter {
 public:
  IndexWriter() { text_ << kMagic; }
  void add(const std::string& name, const std::string& bytes) {
    text_ << name << ' ' << bytes.size() << '\n' << bytes << '\n';
  }
  std::string finish() {
    const std::string text = text_.str();
    return text + Checksum().add(text).text();
  }

 private:
  std::ostringstream text_;
};

class IndexReader {
 public:
  /// Nothing is read from a text whose magic or checksum is wrong.
  explicit IndexReader(const std::string& text) {
    const size_t end = text.rfind('\n') + 1;
    body_ = text.substr(0, end);
    const bool is_whole =
        body_.starts_with(kMagic) && text.substr(end) == Checksum().add(body_).text();
    place_ = is_whole ? std::string(kMagic).size() : std::string::npos;
  }
  std::optional<std::string> take(const std::string& name) {
    if (place_ >= body_.size()) return std::nullopt;
    const size_t line_end = body_.find('\n', place_);
    const std::string line = body_.substr(place_, line_end - place_);
    if (!line.starts_with(name + ' ')) return std::nullopt;
    const size_t size = std::strtoull(line.c_str() + name.size(), nullptr, 10);
    if (size > body_.size() - line_end - 1) return std::nullopt;
    place_ = line_end + 1 + size + 1;
    return body_.substr(line_end + 1, size);
  }

 private:
  std::string body_;
  size_t place_ = std::string::npos;
};

/// Size, checksum and path of every file below a folder; nothing if one cannot be read.
std::optional<std::string> listing(const fs::path& folder) {
  std::string lines;
  for (const fs::path& path : files_below(folder)) {
    const auto bytes = read_bytes(folder / path);
    if (!bytes) return std::nullopt;
    lines += std::to_string(bytes->size()) + ' ' + Checksum().add(*bytes).text() + ' ' +
             path.generic_string() + '\n';
  }
  return lines;
}

struct Index {
  std::string platform, graph, notes;
};

/// The index of a whole entry; nothing if it is damaged.
std::optional<Index> read_entry(const fs::path& entry) {
  const auto text = read_bytes(entry / kIndex);
  if (!text) return std::nullopt;
  IndexReader reader(*text);
  const auto platform = reader.take("platform");
  const auto graph = platform ? reader.take("graph") : std::nullopt;
  const auto notes = graph ? reader.take("notes") : std::nullopt;
  const auto files = notes ? reader.take("files") : std::nullopt;
  if (!files || *files != listing(entry / kFiles)) return std::nullopt;
  return Index{*platform, *graph, *notes};
}

// Away with an entry in one step: a reader finds all of it or nothing.
void drop(const fs::path& entry) {
  const fs::path aside = entry.parent_path() / (kUnfinished + unique_name());
  std::error_code failure;
  fs::rename(entry, aside, failure);
  erase(failure ? entry : aside);
}

/// A folder that is made up to be an entry, and goes unless it became one.
class Unfinished {
 public:
  explicit Unfinished(const fs::path& folder) : path_(folder / (kUnfinished + unique_name())) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() { erase(path_); }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void reject_entry(const fs::path& entry, const std::string& reason) {
  drop(entry);
  notify("compile cache: an entry is not used, because " + reason + ": " + entry.string() +
         "; its graph is compiled anew");
}

void notify_unwritable(const fs::path& folder, const std::string& reason) {
  notify("compile cache: cannot write to " + folder.string() + ": " + reason +
         "; let LUCID_COMPILE_CACHE_DIR name a folder that can be written, or unset it");
}

}  // namespace

DiskCounts disk_counts() { return {num_hits, num_misses, num_writes}; }

std::optional<DiskCache> DiskCache::from_environment() {
  const char* folder = std::getenv("LUCID_COMPILE_CACHE_DIR");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return DiskCache(folder);
}

fs::path DiskCache::entry_path(const Key& key) const {
  return folder_ / (name_of(key.platform + '\n' + key.graph) + kEntrySuffix);
}

fs::path DiskCache::refusal_path(const Key& key) const {
  return folder_ / (kRefused + name_of(key.platform));
}

// A process that died while it tried an entry of this platform left its marker.
bool DiskCache::is_refused(const Key& key) const {
  const fs::path refusal = refusal_path(key);
  const std::string prefix = name_of(key.platform) + kTrying;
  for (const fs::path& path : listed(folder_)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(prefix) || !is_of_the_dead(name.substr(prefix.size()))) continue;
    write_bytes(refusal, key.platform);
    erase(path);
  }
  if (!is_there(refusal)) return false;
  notify(
      "compile cache: a process died while it loaded an executable, so none is loaded any more: " +
      key.platform + "; remove " + refusal.string() + " to try again");
  return true;
}

std::unique_ptr<DiskCache::Candidate> DiskCache::find(const Key& key) const {
  const fs::path entry = entry_path(key);
  if (!is_there(entry / kIndex) || is_refused(key)) {
    ++num_misses;
    return nullptr;
  }
  const auto index = read_entry(entry);
  if (!index) {
    ++num_misses;
    if (is_there(entry / kIndex)) reject_entry(entry, "it is damaged");  // else gone meanwhile
    return nullptr;
  }
  if (index->platform != key.platform || index->graph != key.graph) {
    ++num_misses;
    return nullptr;
  }
  fs::path marker = folder_ / (name_of(key.platform) + kTrying + unique_name());
  if (!write_bytes(marker, entry.filename().string()))
    marker.clear();  // a folder that is only read
  return std::make_unique<Candidate>(entry, index->notes, std::move(marker));
}

DiskCache::Candidate::Candidate(fs::path entry, std::string notes, fs::path marker)
    : entry_(std::move(entry)), notes_(std::move(notes)), marker_(std::move(marker)) {}

DiskCache::Candidate::~Candidate() {
  if (!marker_.empty()) erase(marker_);
  ++(is_accepted_ ? num_hits : num_misses);
}

fs::path DiskCache::Candidate::files() const { return entry_ / kFiles; }

void DiskCache::Candidate::accept() {
  is_accepted_ = true;
  std::error_code failure;  // a folder that is only read keeps its times
  fs::last_write_time(entry_ / kIndex, fs::file_time_type::clock::now(), failure);
}

void DiskCache::Candidate::reject(const std::string& reason) { reject_entry(entry_, reason); }

void DiskCache::store(const Key& key, const Write& write_files) const {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) return notify_unwritable(folder_, failure.message());
  if (is_there(refusal_path(key))) return;
  const Unfinished unfinished(folder_);
  fs::create_directories(unfinished.path() / kFiles, failure);
  if (failure) return notify_unwritable(folder_, failure.message());
  const auto notes = write_files(unfinished.path() / kFiles);
  if (!notes) return;
  const auto files = listing(unfinished.path() / kFiles);
  IndexWriter index;
  index.add("platform", key.platform);
  index.add("graph", key.graph);
  index.add("notes", *notes);
  index.add("files", files.value_or(""));
  if (!files || files->empty() || !write_bytes(unfinished.path() / kIndex, index.finish())) {
    return notify_unwritable(folder_, "the files of an executable are not there");
  }
  if (!publish(key, unfinished.path())) return;
  ++num_writes;
  trim(entry_path(key));
}

// One rename makes the entry; of two processes that write it at once the first one stays.
bool DiskCache::publish(const Key& key, const fs::path& unfinished) const {
  const fs::path entry = entry_path(key);
  std::error_code failure;
  fs::rename(unfinished, entry, failure);
  if (!failure) return true;
  const auto known = read_entry(entry);
  if (known && known->platform == key.platform && known->graph == key.graph) return false;
  drop(entry);
  fs::rename(unfinished, entry, failure);
  if (!failure) return true;
  const bool is_taken =
      failure == std::errc::directory_not_empty || failure == std::errc::file_exists;
  if (!is_taken) notify_unwritable(folder_, failure.message());
  return false;
}

void DiskCache::trim(const fs::path& newest) const {
  struct Kept {
    fs::file_time_type used;
    fs::path path;
    int64_t bytes;
  };
  std::vector<Kept> entries;
  int64_t total = 0;
  for (const fs::path& path : listed(folder_)) {
    const std::string name = path.filename().string();
    if (name.starts_with(kUnfinished) &&
        is_abandoned(path, name.substr(std::string(kUnfinished).size())))
      erase(path);
    if (path.extension() != kEntrySuffix) continue;
    std::error_code failure;
    const auto used = fs::last_write_time(path / kIndex, failure);
    entries.push_back({failure ? fs::file_time_type::min() : used, path, bytes_below(path)});
    total += entries.back().bytes;
  }
  std::ranges::sort(entries, {}, &Kept::used);
  for (const Kept& entry : entries) {
    if (total <= max_bytes_) return;
    if (entry.path == newest) continue;
    drop(entry.path);
    total -= entry.bytes;
  }
}

int64_t DiskCache::clear() const {
  int64_t count = 0;
  for (const fs::path& path : listed(folder_)) {
    const std::string name = path.filename().string();
    const bool is_entry = path.extension() == kEntrySuffix && is_there(path / kIndex);
    if (is_entry) {
      drop(path);
      ++count;
    } else if (name.starts_with(kUnfinished) || name.starts_with(kRefused) ||
               name.find(kTrying) != std::string::npos) {
      erase(path);
    }
  }
  return count;
}

}  // namespace lucid::backends
