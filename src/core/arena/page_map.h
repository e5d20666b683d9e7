// A number for each page, found by address.
//
// A page number leads to a leaf of 4096 entries for as many pages, made when it is first needed and
// kept: 16 KiB for each 16 MiB of addresses of the host's pages.
#ifndef TVM_DTR_CORE_ARENA_PAGE_MAP_H_
#define TVM_DTR_CORE_ARENA_PAGE_MAP_H_

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "core/types.h"

namespace dtr {

class PageMap {
 public:
  explicit PageMap(uint64_t page) : page_(page) {}

  // Of the page that holds the address; kNone where nothing was put.
  uint32_t& operator[](uintptr_t address) {
    uint64_t number = address / page_, key = number / kLeaf;
    if (key != latest_key_) {
      std::unique_ptr<Leaf>& leaf = leaves_[key];
      if (!leaf) {
        leaf = std::make_unique<Leaf>();
        leaf->fill(kNone);
      }
      latest_ = leaf.get();
      latest_key_ = key;
    }
    return (*latest_)[number % kLeaf];
  }

 private:
  static constexpr uint64_t kLeaf = 4096;
  using Leaf = std::array<uint32_t, kLeaf>;

  uint64_t page_;
  std::unordered_map<uint64_t, std::unique_ptr<Leaf>> leaves_;
  uint64_t latest_key_ = ~uint64_t{0};
  Leaf* latest_ = nullptr;
};

}  // namespace dtr

#endif  // TVM_DTR_CORE_ARENA_PAGE_MAP_H_
