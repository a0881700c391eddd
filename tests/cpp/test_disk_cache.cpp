// The folder of executables: what is found again, what goes, and what a dead process leaves.
#include "backends/disk_cache.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "backends/notices.h"
#include "testing.h"

namespace lucid::testing {
namespace {

namespace fs = std::filesystem;
using backends::disk_counts;
using backends::DiskCache;
using backends::take_notices;

/// A folder that goes with the object.
struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "disk_cacheXXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

DiskCache::Key key(const std::string& graph) { return {"a device", graph}; }

DiskCache::Write writes(const std::string& content) {
  return [content](const fs::path& files) {
    std::ofstream(files / "module") << content;
    return "notes of " + content.substr(0, 10);
  };
}

std::string content_of(const fs::path& files) {
  std::string content;
  std::ifstream(files / "module") >> content;
  return content;
}

size_t num_paths(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(an_entry_is_found_again_with_its_notes) {
  const Folder folder;
  const DiskCache cache(folder.path / "made" / "here");
  const auto before = disk_counts();
  CHECK(cache.find(key("a")) == nullptr);
  cache.store(key("a"), writes("first"));
  {
    const auto found = cache.find(key("a"));
    CHECK(found != nullptr);
    CHECK_EQ(content_of(found->files()), "first");
    CHECK_EQ(found->notes(), "notes of first");
    found->accept();
  }
  CHECK(cache.find(key("b")) == nullptr);
  CHECK(cache.find({"another device", "a"}) == nullptr);
  const auto after = disk_counts();
  CHECK_EQ(after.hits - before.hits, 1);
  CHECK_EQ(after.misses - before.misses, 3);
  CHECK_EQ(after.writes - before.writes, 1);
}

TEST(what_is_stored_twice_stays_as_it_was) {
  const Folder folder;
  const DiskCache cache(folder.path);
  cache.store(key("a"), writes("first"));
  cache.store(key("a"), writes("second"));
  CHECK_EQ(content_of(cache.find(key("a"))->files()), "first");
  CHECK_EQ(num_paths(folder.path), 1u);
}

TEST(a_rejected_entry_is_gone_and_its_reason_told_once) {
  const Folder folder;
  const DiskCache cache(folder.path);
  take_notices();
  for (int i = 0; i < 2; ++i) {
    cache.store(key("a"), writes("first"));
    cache.find(key("a"))->reject("it is wrong");
    CHECK(cache.find(key("a")) == nullptr);
  }
  const auto notices = take_notices();
  CHECK_EQ(notices.size(), 1u);
  CHECK(notices[0].starts_with("compile cache: an entry is not used, because it is wrong: "));
  CHECK_EQ(num_paths(folder.path), 0u);
}

TEST(nothing_written_is_nothing_stored) {
  const Folder folder;
  const DiskCache cache(folder.path);
  take_notices();
  cache.store(key("a"), [](const fs::path&) -> std::optional<std::string> { return {}; });
  CHECK(take_notices().empty());
  cache.store(key("a"), [](const fs::path&) { return std::string("no files"); });
  CHECK_EQ(take_notices().size(), 1u);
  CHECK(cache.find(key("a")) == nullptr);
  CHECK_EQ(num_paths(folder.path), 0u);
}

TEST(an_entry_that_cannot_be_put_in_its_place_is_told) {
  const Folder folder;
  const DiskCache cache(folder.path);
  const bool is_root = geteuid() == 0;  // may write anywhere
  constexpr uid_t kNobody = 65534;
  if (is_root && (chown(folder.path.c_str(), kNobody, kNobody) != 0 || seteuid(kNobody) != 0)) {
    return;
  }
  take_notices();
  cache.store(key("a"), [&](const fs::path& files) {
    fs::permissions(folder.path, fs::perms::owner_read | fs::perms::owner_exec);
    return writes("first")(files);
  });
  const auto notices = take_notices();
  fs::permissions(folder.path, fs::perms::owner_all);
  if (is_root) CHECK_EQ(seteuid(0), 0);
  CHECK_EQ(notices.size(), 1u);
  CHECK(notices.at(0).starts_with("compile cache: cannot write to " + folder.path.string()));
  CHECK(cache.find(key("a")) == nullptr);
}

TEST(a_writer_that_throws_leaves_nothing) {
  const Folder folder;
  const DiskCache cache(folder.path);
  const auto write = [](const fs::path&) -> std::string { throw std::runtime_error("no luck"); };
  CHECK_THROWS(cache.store(key("a"), write), std::runtime_error, "no luck");
  CHECK_EQ(num_paths(folder.path), 0u);
}

// Times of files may be coarse.
void tick() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(the_least_recently_used_go_first) {
  const Folder folder;
  const DiskCache cache(folder.path, 4200);
  const std::string big(1000, 'x');
  for (const char* name : {"a", "b", "c"}) {
    cache.store(key(name), writes(big));
    tick();
  }
  cache.find(key("a"))->accept();
  tick();
  cache.store(key("d"), writes(big));
  CHECK(cache.find(key("a")) != nullptr);
  CHECK(cache.find(key("b")) == nullptr);
  CHECK(cache.find(key("d")) != nullptr);
}

TEST(the_newest_entry_stays_however_large) {
  const Folder folder;
  const DiskCache cache(folder.path, 10);
  cache.store(key("a"), writes(std::string(1000, 'x')));
  CHECK(cache.find(key("a")) != nullptr);
}

/// Runs in a child that ends without cleaning up.
void in_a_dying_process(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
}

TEST(a_process_that_died_of_an_entry_stops_all_of_its_platform) {
  const Folder folder;
  const DiskCache cache(folder.path);
  cache.store(key("a"), writes("first"));
  cache.store(key("b"), writes("second"));
  cache.store({"another device", "a"}, writes("third"));
  in_a_dying_process([&] { cache.find(key("a")).release(); });
  take_notices();
  CHECK(cache.find(key("a")) == nullptr);
  CHECK(cache.find(key("b")) == nullptr);
  CHECK(cache.find({"another device", "a"}) != nullptr);
  const auto notices = take_notices();
  CHECK_EQ(notices.size(), 1u);
  CHECK(notices[0].find("so none is loaded any more: a device; remove ") != std::string::npos);
  CHECK_EQ(cache.clear(), 3);
  CHECK_EQ(num_paths(folder.path), 0u);
  cache.store(key("a"), writes("first"));
  CHECK(cache.find(key("a")) != nullptr);
}

TEST(an_entry_that_a_living_process_tries_is_found_by_others) {
  const Folder folder;
  const DiskCache cache(folder.path);
  cache.store(key("a"), writes("first"));
  const auto trying = cache.find(key("a"));
  CHECK(trying != nullptr);
  CHECK(cache.find(key("a")) != nullptr);
}

TEST(what_a_dead_process_left_unfinished_goes) {
  const Folder folder;
  const DiskCache cache(folder.path);
  in_a_dying_process(
      [&] { cache.store(key("a"), [](const fs::path&) -> std::string { _exit(3); }); });
  CHECK_EQ(num_paths(folder.path), 1u);
  cache.store(key("b"), writes("second"));
  CHECK_EQ(num_paths(folder.path), 1u);
}

/// Gives what a dead process left the name it had if the process were one of another host.
fs::path as_of_another_host(const Folder& folder, const std::string& part) {
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    const std::string name = entry.path().filename().string();
    if (name.find(part) == std::string::npos) continue;
    const fs::path other = folder.path / (name.substr(0, name.rfind('.')) + ".0-0");
    fs::rename(entry.path(), other);
    return other;
  }
  CHECK(false);
  return {};
}

TEST(processes_of_other_hosts_are_not_taken_for_dead) {
  const Folder folder;
  const DiskCache cache(folder.path);
  cache.store(key("a"), writes("first"));
  in_a_dying_process([&] { cache.find(key("a")).release(); });
  in_a_dying_process(
      [&] { cache.store(key("b"), [](const fs::path&) -> std::string { _exit(3); }); });
  const fs::path marker = as_of_another_host(folder, ".trying.");
  const fs::path unfinished = as_of_another_host(folder, ".unfinished.");
  CHECK(cache.find(key("a")) != nullptr);
  cache.store(key("c"), writes("third"));
  CHECK(fs::exists(marker));
  CHECK(fs::exists(unfinished));
  // Nobody writes for days.
  fs::last_write_time(unfinished, fs::file_time_type::clock::now() - std::chrono::hours(48));
  cache.store(key("d"), writes("fourth"));
  CHECK(!fs::exists(unfinished));
}

TEST(threads_may_store_find_and_reject) {
  const Folder folder;
  const DiskCache cache(folder.path, 2000);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 40; ++i) {
        const std::string name(1, static_cast<char>('a' + (t + i) % 5));
        cache.store(key(name), writes(name + std::string(300, 'x')));
        const auto found = cache.find(key(name));
        if (found != nullptr && i % 7 == 0) found->reject("it was asked for");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& notice : take_notices()) {
    CHECK(notice.find("it was asked for") != std::string::npos);  // never damage
  }
  cache.clear();
  CHECK_EQ(num_paths(folder.path), 0u);
}

}  // namespace
}  // namespace lucid::testing
