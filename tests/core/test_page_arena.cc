#include <sys/mman.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "core/arena/page_arena.h"

using dtr::Block;
using dtr::PageArena;

TEST(RoundsToUnitsAndPages) {
  PageArena arena(dtr::kUnlimited);
  EXPECT_EQ(arena.RoundedSize(0), 64u);
  EXPECT_EQ(arena.RoundedSize(65), 128u);
  EXPECT_EQ(arena.RoundedSize(129), 192u);
  EXPECT_EQ(arena.RoundedSize(4032), 4032u);
  EXPECT_EQ(arena.RoundedSize(4033), 4096u);
  EXPECT_EQ(arena.RoundedSize(4097), 8192u);
  EXPECT_EQ(arena.RoundedSize(1048512), 1048576u);
  EXPECT_EQ(arena.RoundedSize(1048513), 1048576u + 4096u);  // room for the shift
  EXPECT_EQ(arena.RoundedSize(1048576 + 4096 - 512), 1048576u + 4096u);
  EXPECT_EQ(arena.RoundedSize(1048576 + 4096 - 511), 1048576u + 8192u);
  EXPECT_EQ(arena.RoundedSize(dtr::kUnlimited), dtr::kUnlimited);
  EXPECT_EQ(arena.LeastSize(0), 64u);
  EXPECT_EQ(arena.LeastSize(4097), 4160u);
  EXPECT_EQ(arena.LeastSize(1048577), 1048640u);
  EXPECT_EQ(arena.LeastSize(dtr::kUnlimited), dtr::kUnlimited);
}

TEST(CapacityIsExact) {
  PageArena arena(3 * 4096);
  Block a = arena.Allocate(8192);
  EXPECT(!arena.Allocate(8192));
  Block b = arena.Allocate(4096);
  EXPECT(!arena.Allocate(2049));
  arena.Free(a);
  arena.Free(b);
  EXPECT_EQ(arena.active(), 0u);
  EXPECT(arena.mapped() <= arena.capacity());
  EXPECT(!arena.Allocate(4 * 4096));
  Block c = arena.Allocate(3 * 4096);  // cached pages of other sizes make room
  EXPECT(static_cast<bool>(c));
  EXPECT_EQ(arena.mapped(), 3 * 4096u);
  arena.Free(c);
}

TEST(FreedPagesServeOtherSizes) {
  PageArena arena(8 * 4096);
  Block a = arena.Allocate(3 * 4096), b = arena.Allocate(5 * 4096);
  auto* first = static_cast<char*>(a.data);
  std::memset(a.data, 1, a.bytes);
  std::memset(b.data, 2, b.bytes);
  arena.Free(a);
  arena.Free(b);
  EXPECT_EQ(arena.mapped(), 8 * 4096u);
  Block whole = arena.Allocate(8 * 4096);  // joined: the same memory, contents and all
  EXPECT(whole.data == first);
  EXPECT(first[0] == 1 && first[3 * 4096] == 2);
  arena.Free(whole);
  Block c = arena.Allocate(2 * 4096), d = arena.Allocate(6 * 4096);  // split
  EXPECT(c.data == first && static_cast<char*>(d.data) == first + 2 * 4096);
  arena.Free(c);
  arena.Free(d);
}

TEST(NoRunLongEnoughIsNoObstacle) {
  PageArena arena(8 * 4096);
  std::vector<Block> pages;
  for (int i = 0; i < 8; ++i) pages.push_back(arena.Allocate(4096));
  for (int i = 0; i < 8; i += 2) arena.Free(pages[i]);
  Block scattered = arena.Allocate(4 * 4096);  // four pages that are nowhere side by side
  EXPECT(static_cast<bool>(scattered));
  EXPECT_EQ(arena.mapped(), 8 * 4096u);
  std::memset(scattered.data, 1, scattered.bytes);
  arena.Free(scattered);
  for (int i = 1; i < 8; i += 2) arena.Free(pages[i]);
  EXPECT_EQ(arena.active(), 0u);
}

TEST(LargeBlocksStartAllOverAPage) {
  PageArena arena(dtr::kUnlimited);
  std::set<uintptr_t> places;
  std::vector<Block> blocks;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(arena.Allocate(PageArena::kShifted));
    auto place = reinterpret_cast<uintptr_t>(blocks.back().data) % 4096;
    EXPECT_EQ(place % 64, 0u);
    EXPECT_EQ(blocks.back().bytes, PageArena::kShifted);
    places.insert(place);
  }
  EXPECT_EQ(places.size(), 63u);  // 0 would leave a page unused
  for (const Block& b : blocks) arena.Free(b);
  EXPECT_EQ(arena.active(), 0u);
}

TEST(ExternalMemoryCounts) {
  PageArena arena(10000);
  EXPECT(arena.Charge(6000));
  EXPECT(!arena.Charge(4001));
  EXPECT(arena.Charge(4000));
  arena.Discharge(10000);
  EXPECT_EQ(arena.active(), 0u);
  EXPECT_EQ(arena.peak_active(), 10000u);
}

TEST(PagesAreSharedAndGivenBack) {
  PageArena arena(4096);
  std::vector<Block> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(arena.Allocate(64));
  for (const Block& b : blocks) EXPECT(static_cast<bool>(b));
  EXPECT(!arena.Allocate(64));
  EXPECT_EQ(arena.active(), 4096u);
  for (const Block& b : blocks) arena.Free(b);
  EXPECT_EQ(arena.active(), 0u);
  Block a = arena.Allocate(2048), b = arena.Allocate(1000), c = arena.Allocate(1024);
  EXPECT(a && b && c);  // of any sizes, to the last unit
  EXPECT(!arena.Allocate(1));
}

TEST(SmallBlocksGoToTheEndsOfLargeOnes) {
  PageArena arena(3 * 4096);
  Block large = arena.Allocate(2 * 4096 + 100);
  EXPECT_EQ(arena.active(), 3 * 4096u);
  EXPECT_EQ(arena.BytesToAllocate(4096 - 128), 0u);
  EXPECT_EQ(arena.BytesToAllocate(4096 - 127), 4096u);
  Block small = arena.Allocate(4096 - 128);
  EXPECT_EQ(arena.active(), 3 * 4096u);
  std::memset(small.data, 1, small.bytes);
  std::memset(large.data, 2, large.bytes);
  EXPECT_EQ(int{static_cast<char*>(small.data)[0]}, 1);
  arena.Free(large);  // the page that they shared stays
  EXPECT_EQ(arena.active(), 4096u);
  EXPECT_EQ(int{static_cast<char*>(small.data)[small.bytes - 1]}, 1);
  Block other = arena.Allocate(128);
  EXPECT_EQ(arena.active(), 4096u);
  arena.Free(small);
  EXPECT_EQ(arena.active(), 4096u);
  arena.Free(other);
  EXPECT_EQ(arena.active(), 0u);
}

// Data starts in the first page of a block and ends in its last, whatever its size.
TEST(ShiftedBlocksLeaveNoPageUnused) {
  PageArena arena(dtr::kUnlimited);
  for (uint64_t bytes = PageArena::kShifted; bytes < PageArena::kShifted + 8192; bytes += 64) {
    for (int i = 0; i < 70; ++i) {
      Block b = arena.Allocate(bytes);
      uint64_t shift = reinterpret_cast<uintptr_t>(b.data) % 4096;
      EXPECT(shift > 0);
      EXPECT(shift + bytes <= arena.active() && shift + bytes > arena.active() - 4096);
      EXPECT_EQ(arena.active(), arena.RoundedSize(bytes));
      arena.Free(b);
    }
  }
}

TEST(ShrinkingNeedsRoom) {
  PageArena arena(1 << 20);
  Block a = arena.Allocate(8192);
  arena.Free(arena.Allocate(65536));
  bool fits = true;
  arena.SetCapacity(4096, &fits);
  EXPECT(!fits);
  EXPECT_EQ(arena.capacity(), uint64_t{1} << 20);
  EXPECT_EQ(arena.SetCapacity(8192, &fits), uint64_t{1} << 20);
  EXPECT(fits);
  EXPECT_EQ(arena.mapped(), 8192u);
  arena.Free(a);
}

// Random sizes over both regimes: no two live blocks overlap, every byte is writable, equations
// hold; the unbacked arena takes the same decisions.
TEST(Stress) {
  std::mt19937_64 random(7);
  constexpr uint64_t kCapacity = 4 << 20;
  PageArena arena(kCapacity), shadow(kCapacity, /*backed=*/false);
  struct Live {
    Block block, shadow;
    uint8_t mark;
    uint64_t bytes;
  };
  std::vector<Live> live;
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      uint64_t bytes = random() % 2 ? random() % 3000 : random() % 200000;
      Block b = arena.Allocate(bytes), s = shadow.Allocate(bytes);
      EXPECT_EQ(static_cast<bool>(b), static_cast<bool>(s));
      if (b) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(b.data) % 64, 0u);
        auto mark = static_cast<uint8_t>(random());
        std::memset(b.data, mark, bytes);
        live.push_back({b, s, mark, bytes});
      } else {
        ++refused;
      }
    } else {
      size_t which = random() % live.size();
      Live gone = live[which];
      auto* data = static_cast<uint8_t*>(gone.block.data);
      if (gone.bytes) EXPECT(data[0] == gone.mark && data[gone.bytes - 1] == gone.mark);
      arena.Free(gone.block);
      shadow.Free(gone.shadow);
      live[which] = live.back();
      live.pop_back();
    }
    EXPECT(arena.mapped() <= arena.capacity());
    EXPECT_EQ(arena.active(), shadow.active());
    EXPECT_EQ(arena.mapped(), shadow.mapped());
  }
  EXPECT(refused > 100);
  for (const Live& l : live) arena.Free(l.block);
  EXPECT_EQ(arena.active(), 0u);
}

TEST(UnlimitedCacheIsBounded) {
  PageArena arena(dtr::kUnlimited);
  for (uint64_t i = 1; i < 2000; ++i) arena.Free(arena.Allocate(i * 4096));
  EXPECT(arena.mapped() < 100u << 20);
}

// What a step needs stays mapped for the next one, though the peak is counted anew each step.
TEST(ResetPeakGivesNothingBack) {
  PageArena arena(dtr::kUnlimited);
  constexpr uint64_t kLarge = 100 << 20;
  arena.Free(arena.Allocate(kLarge));
  uint64_t mapped = arena.mapped();
  arena.ResetPeak();
  EXPECT_EQ(arena.peak_active(), 0u);
  Block small = arena.Allocate(8192);
  arena.Free(small);
  EXPECT(arena.mapped() >= mapped);
}

uint64_t AddressPages() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages;  // 0: not Linux
}

// `ulimit -v` counts reserved addresses: the arena has those of its pages and no others, also after
// blocks of ever changing sizes, whose pages were moved about.
TEST(ReservesNothingWhereAddressesAreLimited) {
  rlimit before;
  getrlimit(RLIMIT_AS, &before);
  rlimit limited = before;
  limited.rlim_cur = AddressPages() * PageArena::kPage + (uint64_t{256} << 20);
  if (AddressPages() == 0 || setrlimit(RLIMIT_AS, &limited) != 0) return;
  const uint64_t start = AddressPages();
  {
    constexpr uint64_t kBudget = uint64_t{64} << 20;
    PageArena arena(kBudget);
    std::mt19937 random(7);
    std::vector<Block> blocks;
    for (int i = 0; i < 2000; ++i) {
      uint64_t bytes = 4096 * (1 + random() % 1500);
      while (!blocks.empty() && arena.active() + arena.RoundedSize(bytes) > kBudget) {
        std::swap(blocks[random() % blocks.size()], blocks.back());
        EXPECT_EQ(*static_cast<uint64_t*>(blocks.back().data), blocks.back().bytes);
        arena.Free(blocks.back());
        blocks.pop_back();
      }
      blocks.push_back(arena.Allocate(bytes));
      EXPECT(static_cast<bool>(blocks.back()));
      *static_cast<uint64_t*>(blocks.back().data) = blocks.back().bytes;
    }
    EXPECT(arena.mapped() <= kBudget);
    EXPECT((AddressPages() - start) * PageArena::kPage < kBudget + (uint64_t{16} << 20));
    for (const Block& block : blocks) arena.Free(block);
  }
  EXPECT(AddressPages() < start + (16 << 20) / PageArena::kPage);  // the heap may be less, too
  setrlimit(RLIMIT_AS, &before);
}

int Mappings() {
  std::ifstream maps("/proc/self/maps");
  int lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;  // 0: not Linux
}

// Blocks of few pages, as those of a recurrent network: pages that are moved one by one never join
// their new neighbours, until each has a mapping of its own and every call takes longer.
TEST(MappingsStayFew) {
  constexpr uint64_t kBudget = uint64_t{32} << 20;  // 8192 pages
  PageArena arena(kBudget);
  const int start = Mappings();
  std::mt19937 random(3);
  std::vector<Block> blocks;
  for (int i = 0; i < 60000; ++i) {
    constexpr uint64_t kPages[] = {8, 8, 8, 16, 24, 1, 4};
    const uint64_t bytes = 4096 * kPages[random() % 7];
    while (!blocks.empty() && arena.active() + arena.RoundedSize(bytes) > kBudget) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      arena.Free(blocks.back());
      blocks.pop_back();
    }
    blocks.push_back(arena.Allocate(bytes));
    EXPECT(static_cast<bool>(blocks.back()));
  }
  EXPECT(Mappings() - start < 1500);
  for (const Block& block : blocks) arena.Free(block);
}

TEST_MAIN()
