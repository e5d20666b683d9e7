#include "core/plan/in_place.h"

namespace dtr {
namespace {

uint32_t Root(const Program& program, uint32_t tensor) {
  while (program.tensors[tensor].base != kNone) tensor = program.tensors[tensor].base;
  return tensor;
}

}  // namespace

std::vector<uint32_t> OverwritesIn(const Program& program, const std::vector<uint32_t>& ops) {
  std::vector<uint32_t> times(program.ops.size(), 0);
  for (uint32_t op : ops) {
    if (op < program.ops.size()) times[op]++;
  }
  std::vector<uint8_t> read(program.tensors.size(), 0);  // by root: behind the op at hand
  for (uint32_t t : program.results) read[Root(program, t)] = 1;
  std::vector<uint32_t> found;
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    if (*op >= program.ops.size()) continue;  // the caller says so
    const Program::OpInfo& info = program.ops[*op];
    const uint32_t old = info.overwrites;
    if (old != kNone && times[*op] == 1 && !read[Root(program, old)]) found.push_back(*op);
    for (uint32_t t : info.inputs) read[Root(program, t)] = 1;
  }
  return found;
}

Program InPlace(const Program& program, const std::vector<uint32_t>& ops) {
  Program result = program;
  std::vector<uint32_t> moved(program.storages.size(), kNone);
  for (uint32_t op : ops) {
    const Program::OpInfo& info = program.ops[op];
    moved[program.tensors[info.outputs[0]].storage] = program.tensors[info.overwrites].storage;
  }
  for (Program::TensorInfo& tensor : result.tensors) {
    if (moved[tensor.storage] != kNone) tensor.storage = moved[tensor.storage];
  }
  return result;
}

}  // namespace dtr
