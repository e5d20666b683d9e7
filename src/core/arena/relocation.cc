// Making a run that is long enough out of free pages that lie apart, by copying what lies between.
//
// Copying a page takes a tenth of what a new one takes, and a block of up to half a MiB less than
// changing page tables for it. So blocks whose owner allows it go elsewhere: to other cached runs,
// or, where none is long enough, to the start of the window.
#include <algorithm>

#include "core/arena/page_arena.h"

namespace dtr {
namespace {

constexpr int kSeeds = 32;      // windows are looked for around the longest runs only
constexpr uint64_t kWorth = 3;  // times what is asked for is copied at most

}  // namespace

bool PageArena::ClearRun(uint64_t bytes) {
  if (!owner_ || !pages_->copies() || cached_.bytes() < bytes || Excess(bytes) == 0) return false;
  FindWindows(bytes);
  for (const Window& window : windows_) {
    if (window.free() >= bytes) {
      Slide(window);
      return true;
    }
    if (FindPlaces(window)) {
      Evacuate();
      return true;
    }
  }
  return false;
}

// Windows that offer `bytes` when all blocks in them find room elsewhere, and those that do so
// without, the least copying first.
void PageArena::FindWindows(uint64_t bytes) {
  windows_.clear();
  const uint64_t most = kWorth * bytes;
  cached_.ForEachLongest(kSeeds, [&](uintptr_t start, uint64_t length) {
    for (bool up : {true, false}) {
      Window window{start, start + length, 0};
      bool evacuable = false;
      while (window.free() < bytes && window.live <= most && Extend(&window, up)) {
        if (!evacuable && window.span() >= bytes) {
          evacuable = true;
          windows_.push_back(window);
        }
      }
      if (window.free() >= bytes && window.live <= most) windows_.push_back(window);
    }
    return true;
  });
  std::sort(windows_.begin(), windows_.end(),
            [](const Window& a, const Window& b) { return a.live < b.live; });
}

bool PageArena::Extend(Window* window, bool up) {
  uint64_t cached = up ? cached_.StartingAt(window->end) : cached_.EndingAt(window->start);
  uint64_t live = 0;
  if (cached == 0) {
    LiveBlocks::Id id = up ? blocks_.StartingAt(window->end) : blocks_.EndingAt(window->start);
    if (id == kNone) return false;
    uint32_t number = blocks_[id].number;
    if (number == kNone || !owner_->MayMove(number)) return false;
    if (SharesWithOthers(blocks_[id])) return false;
    live = blocks_[id].bytes;
  }
  (up ? window->end : window->start) += up ? cached + live : -(cached + live);
  window->live += live;
  return true;
}

void PageArena::NoteBlocks(const Window& window) {
  in_window_.clear();
  for (uintptr_t at = window.start; at < window.end;) {
    if (uint64_t cached = cached_.StartingAt(at)) {
      at += cached;
    } else {
      in_window_.push_back(blocks_.StartingAt(at));
      at = blocks_[in_window_.back()].end();
    }
  }
}

// Whether each block of the window finds room in a cached run outside of it, the longest first.
bool PageArena::FindPlaces(const Window& window) {
  NoteBlocks(window);
  std::sort(in_window_.begin(), in_window_.end(), [&](LiveBlocks::Id a, LiveBlocks::Id b) {
    return blocks_[a].bytes > blocks_[b].bytes;
  });
  holes_.clear();
  cached_.ForEachLongest(2 * kSeeds, [&](uintptr_t start, uint64_t length) {
    if (start < window.start || start >= window.end) holes_.push_back({start, length});
    return true;
  });
  places_.clear();
  for (LiveBlocks::Id id : in_window_) {
    uint64_t bytes = blocks_[id].bytes;
    Hole* best = nullptr;
    for (Hole& hole : holes_) {
      if (hole.bytes >= bytes && (!best || hole.bytes < best->bytes)) best = &hole;
    }
    if (!best) return false;
    places_.push_back(best->start);
    best->start += bytes;
    best->bytes -= bytes;
  }
  return true;
}

void PageArena::Evacuate() {
  for (size_t i = 0; i < in_window_.size(); ++i) {
    const LiveBlocks::Entry block = blocks_[in_window_[i]];
    cached_.TakeAt(places_[i], block.bytes);
    MoveBlock(in_window_[i], places_[i]);
    cached_.Add(block.start, block.bytes);
  }
}

void PageArena::Slide(const Window& window) {
  NoteBlocks(window);
  for (uintptr_t at = window.start; at < window.end;) {
    uint64_t cached = cached_.StartingAt(at);
    if (cached > 0) cached_.TakeRun(at);
    at += cached > 0 ? cached : blocks_[blocks_.StartingAt(at)].bytes;
  }
  uintptr_t at = window.start;
  for (LiveBlocks::Id id : in_window_) {
    if (blocks_[id].start != at) MoveBlock(id, at);
    at += blocks_[id].bytes;
  }
  cached_.Add(at, window.end - at);
}

void PageArena::MoveBlock(LiveBlocks::Id id, uintptr_t to) {
  const LiveBlocks::Entry block = blocks_[id];
  TakeBackEnds(block);
  pages_->Copy(block.start + block.shift, to + block.shift, block.data_bytes);
  blocks_.Move(id, to);
  ShareEnds(blocks_[id]);
  owner_->OnMove(block.number, reinterpret_cast<void*>(to + block.shift));
}

}  // namespace dtr
