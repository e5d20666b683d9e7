#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "core/arena/page_source.h"

namespace dtr {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
// Moving less takes longer than new pages do, and leaves a mapping of its own behind, for what was
// moved never joins its new neighbours: with thousands of them every call takes longer.
constexpr uint64_t kLeastMove = uint64_t{64} << 10;
constexpr int kAnonymous = MAP_PRIVATE | MAP_ANONYMOUS;

void* Pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

bool AddressesAreLimited() {
  rlimit limit;
  return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

}  // namespace

HostPages::HostPages() : scarce_(AddressesAreLimited()) {}

HostPages::~HostPages() {
  for (const auto& [start, bytes] : reservations_) munmap(Pointer(start), bytes);
}

uintptr_t HostPages::Reserve(uint64_t least, uint64_t* bytes) {
  void* data = MAP_FAILED;
  if (scarce_) *bytes = least;
  // Less where the process may not have as many addresses.
  for (;; *bytes = std::max(*bytes / 2 / kPage * kPage, least)) {
    data = mmap(nullptr, *bytes, PROT_NONE, kAnonymous | MAP_NORESERVE, -1, 0);
    if (data != MAP_FAILED || *bytes <= least) break;
  }
  if (data == MAP_FAILED) return 0;
  reservations_[reinterpret_cast<uintptr_t>(data)] = *bytes;
  return reinterpret_cast<uintptr_t>(data);
}

// Huge pages only where all of one belongs to us: they never reach over unmapped addresses, which
// have another protection. Smaller blocks get their pages at once: what is mapped is written soon,
// and a fault for each page takes three times as long.
bool HostPages::Map(uintptr_t start, uint64_t bytes) {
  const int populate = bytes < kHugePage ? MAP_POPULATE : 0;
  void* data =
      mmap(Pointer(start), bytes, PROT_READ | PROT_WRITE, kAnonymous | MAP_FIXED | populate, -1, 0);
  if (data == MAP_FAILED) return false;
  if (bytes >= kHugePage) madvise(data, bytes, MADV_HUGEPAGE);  // advice: failure is harmless
  return true;
}

// The addresses stay reserved. Where the process may have no more mappings, the memory goes all
// the same: that takes no mapping.
void HostPages::Unmap(uintptr_t start, uint64_t bytes) {
  void* data =
      mmap(Pointer(start), bytes, PROT_NONE, kAnonymous | MAP_FIXED | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) madvise(Pointer(start), bytes, MADV_DONTNEED);
}

void HostPages::Release(uintptr_t start, uint64_t bytes) {
  munmap(Pointer(start), bytes);
  uintptr_t end = start + bytes;
  auto piece = reservations_.upper_bound(start);
  if (piece != reservations_.begin()) --piece;
  while (piece != reservations_.end() && piece->first < end) {
    auto [first, size] = *piece;
    if (first + size <= start) {
      ++piece;
      continue;
    }
    piece = reservations_.erase(piece);
    if (first < start) reservations_[first] = start - first;
    if (first + size > end) reservations_[end] = first + size - end;
  }
}

// The page tables change, no page is zeroed or faulted in again. The old addresses are never
// without a mapping, so nobody else's can come to lie there.
bool HostPages::Move(uintptr_t from, uintptr_t to, uint64_t bytes) {
#if defined(MREMAP_DONTUNMAP)
  if (bytes < kLeastMove) return false;
  void* data = mremap(Pointer(from), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                      Pointer(to));
  if (data == MAP_FAILED) return false;
  Unmap(from, bytes);
  return true;
#else
  return false;
#endif
}

void HostPages::Copy(uintptr_t from, uintptr_t to, uint64_t bytes) {
  std::memmove(Pointer(to), Pointer(from), bytes);
}

}  // namespace dtr
