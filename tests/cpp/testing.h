// A small test harness: TEST registers, CHECK reports and goes on, main runs all.
// Each test file is one executable; a command-line argument runs only the tests it is part of.
#pragma once

#include <exception>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lucid::testing {

struct Test {
  std::string_view name;
  void (*body)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

/// Failures of all tests so far.
inline int& num_failures() {
  static int count = 0;
  return count;
}

inline bool add_test(std::string_view name, void (*body)()) {
  tests().push_back({name, body});
  return true;
}

inline void fail(const char* file, int line, const std::string& message) {
  ++num_failures();
  std::cerr << file << ':' << line << ": " << message << '\n';
}

/// The value as text, or "?" if it cannot be printed.
template <class T>
std::string describe(const T& value) {
  std::ostringstream out;
  if constexpr (std::is_enum_v<T>) {
    out << static_cast<long long>(value);
  } else if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (requires { value.begin() != value.end(); }) {
    out << '[';
    for (const auto& element : value) out << ' ' << describe(element);
    out << " ]";
  } else {
    out << '?';
  }
  return out.str();
}

template <class Lhs, class Rhs>
bool equal(const Lhs& lhs, const Rhs& rhs) {
  if constexpr (std::is_integral_v<Lhs> && std::is_integral_v<Rhs> && !std::is_same_v<Lhs, bool> &&
                !std::is_same_v<Rhs, bool>) {
    return std::cmp_equal(lhs, rhs);
  } else {
    return lhs == rhs;
  }
}

template <class Lhs, class Rhs>
void check_equal(const char* file, int line, const char* text, const Lhs& lhs, const Rhs& rhs) {
  if (equal(lhs, rhs)) return;
  fail(file, line, std::string(text) + ": " + describe(lhs) + " against " + describe(rhs));
}

/// Runs `body`, which must throw an exception whose text holds `expected`.
template <class Exception, class Body>
void check_throws(const char* file, int line, const char* text, std::string_view expected,
                  Body body) {
  try {
    body();
  } catch (const Exception& error) {
    if (std::string_view(error.what()).find(expected) == std::string_view::npos) {
      fail(file, line,
           std::string(text) + " threw \"" + error.what() + "\"; expected \"" +
               std::string(expected) + '"');
    }
    return;
  }
  fail(file, line, std::string(text) + " did not throw");
}

/// Runs the tests whose names hold `filter`; returns the process's exit code.
inline int run_tests(std::string_view filter) {
  int num_run = 0;
  for (const Test& test : tests()) {
    if (test.name.find(filter) == std::string_view::npos) continue;
    ++num_run;
    const int before = num_failures();
    try {
      test.body();
    } catch (const std::exception& error) {
      fail(test.name.data(), 0, std::string("threw: ") + error.what());
    }
    std::cout << (num_failures() == before ? "ok   " : "FAIL ") << test.name << std::endl;
  }
  std::cout << num_run << " tests, " << num_failures() << " failed checks" << std::endl;
  return num_failures() == 0 && num_run > 0 ? 0 : 1;
}

}  // namespace lucid::testing

/// TEST(name) { ... }
#define TEST(name)                                       \
  static void test_##name();                             \
  [[maybe_unused]] static const bool registered_##name = \
      ::lucid::testing::add_test(#name, test_##name);    \
  static void test_##name()

#define CHECK(...)                                                                             \
  do {                                                                                         \
    if (!(__VA_ARGS__)) ::lucid::testing::fail(__FILE__, __LINE__, "CHECK(" #__VA_ARGS__ ")"); \
  } while (false)

#define CHECK_EQ(lhs, rhs) \
  ::lucid::testing::check_equal(__FILE__, __LINE__, #lhs " == " #rhs, (lhs), (rhs))

/// CHECK_THROWS(verify(graph), lucid::Error, "part of the message")
#define CHECK_THROWS(expression, exception, message)                                  \
  ::lucid::testing::check_throws<exception>(__FILE__, __LINE__, #expression, message, \
                                            [&] { static_cast<void>(expression); })

int main(int argc, char** argv) { return lucid::testing::run_tests(argc > 1 ? argv[1] : ""); }
