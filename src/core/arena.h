// Where memory comes from: one arena per device, its capacity is the budget.
//
// State, in bytes:
//   active  = pages with a live block + external charges
//   mapped  = active + cached                     (what the operating system sees)
//   mapped <= capacity, always, before and after every call
#ifndef TVM_DTR_CORE_ARENA_H_
#define TVM_DTR_CORE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dtr {

class AddressRuns;  // core/arena/address_runs.h

inline constexpr uint64_t kUnlimited = ~uint64_t{0};

struct Block {
  void* data = nullptr;
  uint64_t bytes = 0;             // from data on, what was asked for at least
  uint32_t place = ~uint32_t{0};  // the arena's own
  explicit operator bool() const { return data != nullptr; }
};

// Whose blocks an arena may move to other addresses, for the sake of a run that is long enough.
class BlockOwner {
 public:
  virtual ~BlockOwner() = default;
  // Whether nobody has the address of the owner's block `number` at hand.
  virtual bool MayMove(uint32_t number) const = 0;
  // Its bytes are at `data` now, and only there.
  virtual void OnMove(uint32_t number, void* data) = 0;
};

class Arena {
 public:
  virtual ~Arena() = default;

  // A block of at least `bytes` bytes, aligned to 64, or an empty Block if it does not fit under
  // the capacity. A request for 0 bytes gets a block too.
  virtual Block Allocate(uint64_t bytes) = 0;
  virtual void Free(const Block& block) = 0;
  // From now on Allocate may move blocks that are owned, each by a number of the owner's: see
  // BlockOwner. Null: no more. For arenas that never move any this does nothing.
  virtual void SetOwner(BlockOwner* owner) {}
  virtual void Own(const Block& block, uint32_t number) {}

  // Memory that somebody else owns but the program holds (a caller's input used without a copy).
  // False, and nothing charged, if it does not fit.
  virtual bool Charge(uint64_t bytes) = 0;
  virtual void Discharge(uint64_t bytes) = 0;

  // What a block of `bytes` takes where it shares with no other; what it takes at least, others
  // having the rest of its pages: live blocks' add up to active() or less; and what allocating one
  // now would add to active(): a page for a small block, nothing if there is room in shared ones.
  virtual uint64_t RoundedSize(uint64_t bytes) const = 0;
  virtual uint64_t LeastSize(uint64_t bytes) const { return RoundedSize(bytes); }
  virtual uint64_t BytesToAllocate(uint64_t bytes) const { return RoundedSize(bytes); }
  virtual uint64_t active() const = 0;
  virtual uint64_t mapped() const = 0;
  virtual uint64_t peak_active() const = 0;
  virtual uint64_t peak_mapped() const = 0;
  virtual void ResetPeak() = 0;
  virtual uint64_t capacity() const = 0;
  // The largest block that could be had now without evicting anything.
  virtual uint64_t largest_free() const = 0;
  // Live blocks and the gaps between them by address, where placing a block takes a gap that is
  // long enough; null where any free memory serves any block.
  virtual const AddressRuns* runs() const { return nullptr; }

  // Returns the old capacity. Gives cached pages back to reach the new one; false in *fits if
  // live blocks alone exceed it (the capacity is then unchanged: evict first).
  virtual uint64_t SetCapacity(uint64_t capacity, bool* fits) = 0;
};

// `name` as in --arena: "paged" or "best-fit", on the host. `backed` false: addresses without
// memory behind them, for simulations that must take the same decisions as a real run; these may
// also ask for "counting", which has no rounding and no fragmentation, and "counting-rounded",
// which rounds as "paged" does. Throws std::invalid_argument naming the valid ones.
std::unique_ptr<Arena> MakeArena(const std::string& name, uint64_t capacity, bool backed);
std::vector<std::string> ArenaNames();

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_H_
