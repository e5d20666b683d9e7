#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "core/arena/best_fit_arena.h"
#include "core/errors.h"

using dtr::BestFitArena;
using dtr::Block;

namespace {

constexpr uint64_t kPage = 4096;

uintptr_t Address(const Block& block) { return reinterpret_cast<uintptr_t>(block.data); }

}  // namespace

TEST(TakesTheSmallestRunThatIsLongEnough) {
  BestFitArena arena(16 * kPage);
  std::vector<Block> blocks;  // 3, 1, 2, 1, 9 pages
  for (uint64_t pages : {3, 1, 2, 1, 9}) blocks.push_back(arena.Allocate(pages * kPage));
  EXPECT(!arena.Allocate(1));
  arena.Free(blocks[0]);
  arena.Free(blocks[2]);
  EXPECT_EQ(arena.largest_free(), 3 * kPage);
  Block two = arena.Allocate(2 * kPage);
  EXPECT_EQ(Address(two), Address(blocks[2]));
  Block one = arena.Allocate(100);  // 128 bytes, at the start of the first run
  EXPECT_EQ(one.bytes, 128u);
  EXPECT_EQ(Address(one), Address(blocks[0]));
  EXPECT_EQ(arena.largest_free(), 3 * kPage - 128);
  arena.Validate();
}

TEST(NeighboursAreJoined) {
  BestFitArena arena(6 * kPage);
  std::vector<Block> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(arena.Allocate(2 * kPage));
  arena.Free(blocks[0]);
  arena.Free(blocks[2]);
  EXPECT(!arena.Allocate(3 * kPage));  // four pages are free, in two places
  EXPECT_EQ(arena.active(), 2 * kPage);
  arena.Free(blocks[1]);
  EXPECT_EQ(arena.runs()->live_records(), 1u);
  Block whole = arena.Allocate(6 * kPage);
  EXPECT_EQ(Address(whole), Address(blocks[0]));
  arena.Free(whole);
  arena.Validate();
}

TEST(MemoryThatIsFreeMakesRoomForExternal) {
  BestFitArena arena(8 * kPage);
  Block a = arena.Allocate(4 * kPage), b = arena.Allocate(4 * kPage);
  arena.Free(a);
  EXPECT_EQ(arena.mapped(), 8 * kPage);
  EXPECT(arena.Charge(kPage + 1));  // two of a's pages go
  EXPECT_EQ(arena.mapped(), 4 * kPage + 2 * kPage + kPage + 1);
  EXPECT(!arena.Charge(3 * kPage));
  EXPECT(!arena.Allocate(3 * kPage));  // its addresses are free, its pages are not
  arena.Validate();
  Block c = arena.Allocate(2 * kPage);
  EXPECT(static_cast<bool>(c));
  std::memset(c.data, 1, c.bytes);
  arena.Discharge(kPage + 1);
  Block d = arena.Allocate(2 * kPage);
  EXPECT(static_cast<bool>(d));
  std::memset(d.data, 1, d.bytes);
  for (const Block& block : {b, c, d}) arena.Free(block);
  EXPECT_EQ(arena.active(), 0u);
  arena.Validate();
}

TEST(CapacityShrinksAndGrows) {
  BestFitArena arena(8 * kPage);
  Block a = arena.Allocate(2 * kPage), b = arena.Allocate(2 * kPage);
  arena.Free(a);
  bool fits = true;
  arena.SetCapacity(kPage, &fits);
  EXPECT(!fits);
  EXPECT_EQ(arena.SetCapacity(3 * kPage, &fits), 8 * kPage);
  EXPECT(fits);
  EXPECT(arena.mapped() <= 3 * kPage);
  EXPECT(!arena.Allocate(2 * kPage));
  arena.Validate();
  EXPECT_EQ(arena.SetCapacity(32 * kPage, &fits), 3 * kPage);
  Block c = arena.Allocate(28 * kPage);
  EXPECT(static_cast<bool>(c));
  std::memset(c.data, 1, c.bytes);
  arena.Validate();
  arena.Free(b);
  arena.Free(c);
  EXPECT_EQ(arena.SetCapacity(kPage, &fits), 32 * kPage);
  EXPECT(fits && arena.mapped() <= kPage);
  arena.Validate();
}

TEST(WithoutABudgetTheRangeIsWhatThereIs) {
  BestFitArena arena(dtr::kUnlimited);
  Block a = arena.Allocate(100 << 20);
  EXPECT(static_cast<bool>(a));
  EXPECT_EQ(arena.active(), uint64_t{100} << 20);
  EXPECT(!arena.Allocate(dtr::kUnlimited - 1));
  arena.Free(a);
}

TEST(ABlockIsFreedOnce) {
  BestFitArena arena(8 * kPage);
  Block a = arena.Allocate(kPage);
  arena.Free(a);
  EXPECT_THROWS(arena.Free(a), dtr::InternalError);
}

// Every byte that was written is found again, no two live blocks overlap, the equations hold, and
// the arena without memory takes the same decisions: with blocks of all sizes, external memory
// that comes and goes, and a capacity that changes.
TEST(Stress) {
  std::mt19937_64 random(11);
  constexpr uint64_t kCapacity = 4 << 20;
  BestFitArena arena(kCapacity), shadow(kCapacity, /*backed=*/false);
  struct Live {
    Block block, shadow;
    uint8_t mark;
    uint64_t bytes;
  };
  std::vector<Live> live;
  std::map<uintptr_t, uintptr_t> taken;
  uint64_t external = 0;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    uint64_t what = random() % 100;
    bool fits, shadow_fits;
    if (what < 2) {
      uint64_t capacity = kCapacity / 2 + random() % kCapacity;
      arena.SetCapacity(capacity, &fits);
      shadow.SetCapacity(capacity, &shadow_fits);
      EXPECT_EQ(fits, shadow_fits);
    } else if (what < 6) {
      arena.Discharge(external);
      shadow.Discharge(external);
      external = random() % 500000;
      fits = arena.Charge(external);
      EXPECT_EQ(fits, shadow.Charge(external));
      if (!fits) external = 0;
    } else if (live.empty() || what < 62) {
      uint64_t bytes = random() % 2 ? random() % 3000 : random() % 200000;
      Block b = arena.Allocate(bytes), s = shadow.Allocate(bytes);
      EXPECT_EQ(static_cast<bool>(b), static_cast<bool>(s));
      if (!b) {
        ++refused;
        continue;
      }
      EXPECT_EQ(Address(b) % 64, 0u);
      EXPECT_EQ(b.place, s.place);
      auto next = taken.lower_bound(Address(b));
      EXPECT(next == taken.end() || next->first >= Address(b) + b.bytes);
      EXPECT(next == taken.begin() || std::prev(next)->second <= Address(b));
      taken[Address(b)] = Address(b) + b.bytes;
      auto mark = static_cast<uint8_t>(random());
      std::memset(b.data, mark, bytes);
      live.push_back({b, s, mark, bytes});
    } else {
      size_t which = random() % live.size();
      Live gone = live[which];
      auto* data = static_cast<uint8_t*>(gone.block.data);
      if (gone.bytes) EXPECT(data[0] == gone.mark && data[gone.bytes - 1] == gone.mark);
      arena.Free(gone.block);
      shadow.Free(gone.shadow);
      taken.erase(Address(gone.block));
      live[which] = live.back();
      live.pop_back();
    }
    EXPECT(arena.mapped() <= arena.capacity());
    EXPECT_EQ(arena.active(), shadow.active());
    EXPECT_EQ(arena.mapped(), shadow.mapped());
    if (i % 16 == 0) arena.Validate();
  }
  EXPECT(refused > 100);
  for (const Live& l : live) arena.Free(l.block);
  EXPECT_EQ(arena.active(), external);
  arena.Validate();
}

TEST(ArenasByName) {
  EXPECT_EQ(dtr::ArenaNames().size(), 2u);
  EXPECT(dtr::MakeArena("paged", 1 << 20, false)->runs() == nullptr);
  EXPECT(dtr::MakeArena("best-fit", 1 << 20, false)->runs() != nullptr);
  EXPECT_THROWS(dtr::MakeArena("buddy", 1 << 20, false), std::invalid_argument);
}

TEST_MAIN()
