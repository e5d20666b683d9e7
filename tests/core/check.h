// A test is a function under TEST(name); a failed check prints where and what, and the program
// exits with the number of failed tests.
#ifndef TVM_DTR_TESTS_CORE_CHECK_H_
#define TVM_DTR_TESTS_CORE_CHECK_H_

#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace dtr_test {

struct Test {
  const char* name;
  std::function<void()> body;
};
inline std::vector<Test>& Tests() {
  static std::vector<Test> tests;
  return tests;
}
struct Register {
  Register(const char* name, std::function<void()> body) { Tests().push_back({name, body}); }
};

template <typename T>
std::string Show(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <typename A, typename B>
void Equal(const A& a, const B& b, const char* text, const char* file, int line) {
  if (a == b) return;
  throw std::runtime_error(std::string(file) + ":" + std::to_string(line) + ": " + text + ": " +
                           Show(a) + " != " + Show(b));
}

inline int RunAll() {
  int failed = 0;
  for (const Test& test : Tests()) {
    try {
      test.body();
    } catch (const std::exception& e) {
      ++failed;
      std::cerr << "FAILED " << test.name << ": " << e.what() << "\n";
    }
  }
  std::cout << Tests().size() - failed << " passed, " << failed << " failed\n";
  return failed;
}

}  // namespace dtr_test

#define TEST(name)                                          \
  static void name();                                       \
  static ::dtr_test::Register register_##name(#name, name); \
  static void name()
#define EXPECT_EQ(a, b) ::dtr_test::Equal(a, b, #a " == " #b, __FILE__, __LINE__)
#define EXPECT(condition) \
  ::dtr_test::Equal(static_cast<bool>(condition), true, #condition, __FILE__, __LINE__)
#define EXPECT_THROWS(statement, type)                                                \
  do {                                                                                \
    bool thrown = false;                                                              \
    try {                                                                             \
      statement;                                                                      \
    } catch (const type&) {                                                           \
      thrown = true;                                                                  \
    }                                                                                 \
    ::dtr_test::Equal(thrown, true, #statement " throws " #type, __FILE__, __LINE__); \
  } while (false)
#define TEST_MAIN() \
  int main() { return ::dtr_test::RunAll(); }

#endif  // TVM_DTR_TESTS_CORE_CHECK_H_
