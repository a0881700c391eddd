// DiskCache: compiled executables in a folder, for the processes that come after this one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace lucid::backends {

/// Whole-process counts: executables loaded, looked for in vain, and written.
struct DiskCounts {
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t writes = 0;
};
DiskCounts disk_counts();

/// A folder of executables. It never fails a compilation: what is wrong with it becomes a notice,
/// and the caller compiles. Several threads and processes may use one folder at once: an entry is a
/// folder of its own that appears by one rename, with checksums of all it holds. The least recently
/// used entries go where it grows over `max_bytes`.
class DiskCache {
 public:
  static constexpr int64_t kMaxBytes = int64_t{4} << 30;

  explicit DiskCache(std::filesystem::path folder, int64_t max_bytes = kMaxBytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}

  /// The folder that the environment variable LUCID_COMPILE_CACHE_DIR names; none if unset.
  static std::optional<DiskCache> from_environment();

  /// What an executable depends on. Entries of another key are not found.
  struct Key {
    std::string platform;  ///< device, system and package, with their versions
    std::string graph;     ///< structure and all options
  };

  /// An entry that was found whole. A file beside it says that this process tries it: should the
  /// process die while it does, no entry of that platform is tried again.
  class Candidate {
   public:
    /// `marker` is the file that says so, or empty.
    Candidate(std::filesystem::path entry, std::string notes, std::filesystem::path marker);
    Candidate(const Candidate&) = delete;
    Candidate& operator=(const Candidate&) = delete;
    ~Candidate();

    std::filesystem::path files() const;
    const std::string& notes() const { return notes_; }
    /// Counts a hit. Without it the candidate counts as a miss.
    void accept();
    /// Drops the entry and says why.
    void reject(const std::string& reason);

   private:
    std::filesystem::path entry_;
    std::string notes_;
    std::filesystem::path marker_;
    bool is_accepted_ = false;
  };
  std::unique_ptr<Candidate> find(const Key& key) const;

  /// Lets `write` put files into an empty folder; what it returns becomes the notes. Nothing is
  /// stored if it returns nothing.
  using Write = std::function<std::optional<std::string>(const std::filesystem::path& files)>;
  void store(const Key& key, const Write& write) const;

  /// Removes all entries; files that the cache did not write stay. Returns how many there were.
  int64_t clear() const;

 private:
  std::filesystem::path entry_path(const Key& key) const;
  std::filesystem::path refusal_path(const Key& key) const;
  bool is_refused(const Key& key) const;
  bool publish(const Key& key, const std::filesystem::path& unfinished) const;
  void trim(const std::filesystem::path& newest) const;

  std::filesystem::path folder_;
  int64_t max_bytes_;
};

}  // namespace lucid::backends
