// Blocks that their owner lets the arena move: contents, numbers and budgets survive it.
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "check.h"
#include "core/arena/page_arena.h"

using dtr::Block;
using dtr::PageArena;

namespace {

constexpr uint64_t kPage = PageArena::kPage;

// Pages without memory, and how often page tables would have changed.
class CountedPages : public dtr::NoPages {
 public:
  explicit CountedPages(int* changes) : changes_(changes) {}
  bool Map(uintptr_t, uint64_t) override { return ++*changes_; }
  void Unmap(uintptr_t, uint64_t) override { ++*changes_; }
  bool Move(uintptr_t, uintptr_t, uint64_t) override { return ++*changes_; }

 private:
  int* changes_;
};

class Owner : public dtr::BlockOwner {
 public:
  explicit Owner(dtr::Arena* arena) : arena_(arena) { arena->SetOwner(this); }

  // The new block's number; 0 if it does not fit.
  uint32_t Take(uint64_t bytes, bool may_move) {
    Block block = arena_->Allocate(bytes);
    if (!block) return 0;
    arena_->Own(block, ++latest_);
    held_[latest_] = {block, may_move};
    return latest_;
  }
  void Give(uint32_t number) {
    arena_->Free(held_.at(number).first);
    held_.erase(number);
  }
  const Block& operator[](uint32_t number) const { return held_.at(number).first; }
  char* Data(uint32_t number) const { return static_cast<char*>(held_.at(number).first.data); }

  bool MayMove(uint32_t number) const override { return held_.at(number).second; }
  void OnMove(uint32_t number, void* data) override {
    EXPECT(MayMove(number));
    held_.at(number).first.data = data;
    ++moves;
  }
  std::map<uint32_t, std::pair<Block, bool>>& held() { return held_; }
  int moves = 0;

 private:
  dtr::Arena* arena_;
  uint32_t latest_ = 0;
  std::map<uint32_t, std::pair<Block, bool>> held_;
};

// Pages in use, in turn, and the others free.
std::vector<uint32_t> EveryOther(Owner* owner, int pages, bool may_move) {
  std::vector<uint32_t> kept, others;
  for (int i = 0; i < pages; ++i) {
    (i % 2 ? kept : others).push_back(owner->Take(kPage, may_move));
    std::memset(owner->Data(kept.size() == others.size() ? kept.back() : others.back()), i, kPage);
  }
  for (uint32_t number : others) owner->Give(number);
  return kept;
}

}  // namespace

TEST(BlocksMakeWay) {
  PageArena arena(8 * kPage);
  Owner owner(&arena);
  std::vector<uint32_t> kept = EveryOther(&owner, 8, /*may_move=*/true);
  uint32_t run = owner.Take(4 * kPage, false);
  EXPECT(run != 0);
  EXPECT(owner.moves > 0 && owner.moves <= 2);  // two go where two others were, at most
  std::memset(owner.Data(run), 0xff, 4 * kPage);
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(owner.Data(kept[i])[0], static_cast<char>(2 * i + 1));
    EXPECT_EQ(owner.Data(kept[i])[kPage - 1], static_cast<char>(2 * i + 1));
    owner.Give(kept[i]);
  }
  owner.Give(run);
  EXPECT_EQ(arena.active(), 0u);
}

TEST(PageTablesStayAsTheyAre) {
  for (bool may_move : {true, false}) {
    int changes = 0;
    PageArena arena(8 * kPage, std::make_unique<CountedPages>(&changes), PageArena::kHost);
    struct NoData : dtr::BlockOwner {
      bool MayMove(uint32_t) const override { return may; }
      void OnMove(uint32_t number, void* data) override { blocks[number].data = data; }
      bool may = false;
      std::vector<Block> blocks;
    } owner;
    owner.may = may_move;
    arena.SetOwner(&owner);
    for (uint32_t i = 0; i < 8; ++i) {
      owner.blocks.push_back(arena.Allocate(kPage));
      arena.Own(owner.blocks.back(), i);
    }
    for (uint32_t i = 0; i < 8; i += 2) arena.Free(owner.blocks[i]);
    changes = 0;
    EXPECT(static_cast<bool>(arena.Allocate(4 * kPage)));
    EXPECT_EQ(changes == 0, may_move);
    EXPECT_EQ(arena.mapped(), 8 * kPage);
  }
}

TEST(WhatMayNotMoveStays) {
  PageArena arena(8 * kPage);
  Owner owner(&arena);
  std::vector<uint32_t> kept = EveryOther(&owner, 8, /*may_move=*/false);
  std::vector<char*> before;
  for (uint32_t number : kept) before.push_back(owner.Data(number));
  EXPECT(owner.Take(4 * kPage, false) != 0);  // by page tables
  EXPECT_EQ(owner.moves, 0);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT(owner.Data(kept[i]) == before[i]);
}

TEST(WithoutAnOwnerNothingMoves) {
  PageArena arena(8 * kPage);
  int moves = 0;
  {
    Owner owner(&arena);
    std::vector<uint32_t> kept = EveryOther(&owner, 8, /*may_move=*/true);
    arena.SetOwner(nullptr);
    Block run = arena.Allocate(4 * kPage);
    EXPECT(static_cast<bool>(run));
    moves = owner.moves;
    arena.Free(run);
    for (uint32_t number : kept) owner.Give(number);
  }
  EXPECT_EQ(moves, 0);
  EXPECT_EQ(arena.active(), 0u);
}

// Any set of blocks whose rounded sizes fit can be placed, whatever may move; nothing is lost on
// the way, and an arena without memory takes the same decisions.
TEST(RandomBlocksSurvive) {
  std::mt19937_64 random(11);
  constexpr uint64_t kCapacity = uint64_t{4} << 20;
  PageArena arena(kCapacity), bare(kCapacity, /*backed=*/false);
  Owner owner(&arena), shadow(&bare);
  std::map<uint32_t, uint8_t> marks;
  std::vector<uint32_t> live;
  int refused = 0;
  for (int i = 0; i < 12000; ++i) {
    if (live.empty() || random() % 9 < 5) {
      uint64_t bytes = kPage * (random() % 16 ? 1 + random() % 12 : 1 + random() % 300);
      if (random() % 8 == 0) bytes = 1 + random() % 3000;
      bool may_move = random() % 4 > 0;
      bool fits = arena.BytesToAllocate(bytes) <= kCapacity - arena.active();
      uint32_t number = owner.Take(bytes, may_move);
      EXPECT_EQ(number != 0, fits);
      EXPECT_EQ(shadow.Take(bytes, may_move) != 0, fits);
      if (number == 0) {
        ++refused;
      } else {
        live.push_back(number);
        std::memset(owner.Data(number), marks[number] = static_cast<uint8_t>(random()), bytes);
      }
    } else {
      std::swap(live[random() % live.size()], live.back());
      const Block& block = owner[live.back()];
      auto* data = static_cast<uint8_t*>(block.data);
      EXPECT(data[0] == marks[live.back()]);
      if (block.bytes > kPage) EXPECT(data[kPage] == marks[live.back()]);
      owner.Give(live.back());
      shadow.Give(live.back());
      live.pop_back();
    }
    EXPECT_EQ(owner.moves, shadow.moves);
    EXPECT(arena.mapped() <= kCapacity);
    EXPECT_EQ(arena.mapped(), bare.mapped());
  }
  for (uint32_t number : live) EXPECT(owner.Data(number)[0] == static_cast<char>(marks[number]));
  EXPECT(refused > 100);
  EXPECT(owner.moves > 200);
}

TEST_MAIN()
