// Memory for maps: what one step gives back, the next one takes again. Fresh memory would come as
// zeroed pages at every step (a tenth of its time), and a heap of a few sizes of large pieces grows
// far beyond what is in use.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "api.h"

namespace freetickets {
namespace {

constexpr size_t HUGE_PAGE = size_t{1} << 21;

// Consecutive pages; `region` is where the memory begins that the system gave as a whole.
struct Piece {
  char* start;
  size_t bytes;
  char* region;
};

size_t rounded(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

// From the system, in whole huge pages: the kernels walk over maps in long strides.
Piece map_region(size_t bytes) {
  const size_t more = bytes + HUGE_PAGE;
  void* found = mmap(nullptr, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return {nullptr, 0, nullptr};
  char* const raw = static_cast<char*>(found);
  const size_t before = rounded(reinterpret_cast<uintptr_t>(raw)) - reinterpret_cast<uintptr_t>(raw);
  if (before > 0) munmap(raw, before);
  if (before < HUGE_PAGE) munmap(raw + before + bytes, HUGE_PAGE - before);
#if defined(MADV_HUGEPAGE)
  madvise(raw + before, bytes, MADV_HUGEPAGE);
#endif
  return {raw + before, bytes, raw + before};
}

// Hands out the smallest idle piece that is large enough, and keeps the rest of it; pieces that lie
// side by side grow together again.
class Pool {
 public:
  Piece take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = rounded(bytes);
    const auto fitting = by_size_.lower_bound({bytes, nullptr});
    if (fitting == by_size_.end()) {
      release(bytes);
      const Piece fresh = map_region(bytes);
      if (fresh.start != nullptr) regions_[fresh.start] = bytes;
      return fresh;
    }
    const Piece piece = idle_.at(fitting->second);
    remove(piece);
    if (piece.bytes > bytes) add({piece.start + bytes, piece.bytes - bytes, piece.region});
    return {piece.start, bytes, piece.region};
  }

  void give_back(Piece piece) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto after = idle_.find(piece.start + piece.bytes);
    if (after != idle_.end() && after->second.region == piece.region) {
      piece.bytes += after->second.bytes;
      remove(Piece(after->second));
    }
    const auto next = idle_.lower_bound(piece.start);
    if (next != idle_.begin()) {
      const Piece before = std::prev(next)->second;
      if (before.start + before.bytes == piece.start && before.region == piece.region) {
        remove(before);
        piece = {before.start, before.bytes + piece.bytes, piece.region};
      }
    }
    add(piece);
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    release(SIZE_MAX);
  }

 private:
  void add(const Piece& piece) {
    idle_.emplace(piece.start, piece);
    by_size_.emplace(piece.bytes, piece.start);
  }

  void remove(const Piece& piece) {
    by_size_.erase({piece.bytes, piece.start});
    idle_.erase(piece.start);
  }

  // Gives idle regions back, this many bytes if there are so many: the pool never outgrows what was
  // needed at once by more than its gaps.
  void release(size_t bytes) {
    size_t freed = 0;
    for (auto region = regions_.begin(); region != regions_.end() && freed < bytes;) {
      const auto piece = idle_.find(region->first);
      if (piece == idle_.end() || piece->second.bytes != region->second) {
        ++region;
        continue;
      }
      freed += region->second;
      remove(Piece(piece->second));
      munmap(region->first, region->second);
      region = regions_.erase(region);
    }
  }

  std::mutex mutex_;
  std::map<char*, size_t> regions_;             // their sizes
  std::map<char*, Piece> idle_;                 // by their starts
  std::set<std::pair<size_t, char*>> by_size_;  // the same
};

// Never destroyed: tensors may outlive everything else at the end of the process.
Pool& pool() {
  static Pool* const found = new Pool;
  return *found;
}

// DLPack, version 0: how libraries hand tensors to each other.
struct DLTensor {
  void* data;
  struct { int32_t type, id; } device;
  int32_t dimensions;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t* shape;
  int64_t* strides;  // null: contiguous
  uint64_t offset;
};

struct DLManagedTensor {
  DLTensor tensor;
  void* context;
  void (*deleter)(DLManagedTensor*);
};

constexpr int MOST_DIMENSIONS = 8;

struct Owner {
  DLManagedTensor managed;
  Piece piece;
  int64_t shape[MOST_DIMENSIONS];
};

void give_back(DLManagedTensor* managed) {
  auto* owner = static_cast<Owner*>(managed->context);
  pool().give_back(owner->piece);
  delete owner;
}

}  // namespace
}  // namespace freetickets

using namespace freetickets;

void* ft_new_tensor(const int64_t* shape, int dimensions) {
  size_t bytes = sizeof(float);
  for (int i = 0; i < dimensions; ++i) bytes *= static_cast<size_t>(shape[i]);
  const Piece piece = dimensions <= MOST_DIMENSIONS ? pool().take(bytes) : Piece{nullptr, 0, nullptr};
  if (piece.start == nullptr) return nullptr;
  auto* owner = new Owner{};
  std::copy(shape, shape + dimensions, owner->shape);
  owner->piece = piece;
  constexpr int CPU = 1, FLOAT = 2;
  owner->managed = {{piece.start, {CPU, 0}, dimensions, {FLOAT, 32, 1}, owner->shape, nullptr, 0}, owner, give_back};
  return &owner->managed;
}

void ft_release_memory() { pool().clear(); }
