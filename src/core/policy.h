// Which storage to evict. A policy sees sizes, costs, ages and neighbours; never TVM or a device.
#ifndef TVM_DTR_CORE_POLICY_H_
#define TVM_DTR_CORE_POLICY_H_

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "core/types.h"

namespace dtr {

class Arena;  // core/arena.h
class Graph;  // core/graph.h: storages and their neighbours

class Policy {
 public:
  virtual ~Policy() = default;

  // The evictable storage to give up next, kNone if there is none. `clock` in cost units. A
  // storage smaller than `smallest` bytes is given up only when there is nothing else.
  virtual StorageId SelectVictim(const Graph& graph, double clock, uint64_t smallest) = 0;

  // What the policy minimises, for a storage that is evictable; NaN for a policy without a score.
  // Looking at it changes no decision.
  virtual double ScoreOf(const Graph& graph, StorageId storage, double clock) {
    return std::numeric_limits<double>::quiet_NaN();
  }

  // What the victims selected from now on make room for: a block of `bytes`, or a new capacity
  // (0). For policies that look at where blocks lie.
  virtual void OnRequest(const Arena& arena, uint64_t bytes) {}
  // Whether it does: it then needs an arena with Arena::runs().
  virtual bool needs_addresses() const { return false; }

  // Called after the storage's state in `graph` has changed.
  virtual void OnCreate(const Graph& graph, StorageId storage) {}
  virtual void OnEvict(const Graph& graph, StorageId storage) {}
  virtual void OnRematerialize(const Graph& graph, StorageId storage) {}
  // The storage's cost grew by `delta` (another op fills it).
  virtual void OnCostChange(const Graph& graph, StorageId storage, double delta) {}
  // The record is about to go; `storage` will be used again as an id.
  virtual void OnForget(const Graph& graph, StorageId storage) {}
};

// `name` as in --policy, `search` as in --search; throws std::invalid_argument naming the valid
// ones. `seed` is for what draws at random.
std::unique_ptr<Policy> MakePolicy(const std::string& name, const std::string& search,
                                   uint64_t seed);

std::vector<std::string> PolicyNames();
std::vector<std::string> SearchNames();

}  // namespace dtr

#endif  // TVM_DTR_CORE_POLICY_H_
