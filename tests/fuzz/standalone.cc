// Feeds inputs to a target without libFuzzer: files that are named, or as many random ones.
//
//   fuzz_X FILE...
//   fuzz_X --random COUNT [SEED]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "bytes.h"

namespace {

void RunRandom(uint64_t count, uint64_t seed) {
  for (uint64_t i = 0; i < count; ++i) {
    std::mt19937_64 random(seed + i);
    std::vector<uint8_t> data(random() % 600);
    const uint64_t range = random() % 4 == 0 ? 256 : 8 + random() % 60;  // small numbers fit more
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random() % range);
    LLVMFuzzerTestOneInput(data.data(), data.size());
  }
}

void RunFile(const char* name) {
  std::ifstream file(name, std::ios::binary);
  std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(data.data()), data.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::string(argv[1]) == "--random") {
    RunRandom(std::strtoull(argv[2], nullptr, 10),
              argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0);
    return 0;
  }
  for (int i = 1; i < argc; ++i) RunFile(argv[i]);
  return 0;
}
