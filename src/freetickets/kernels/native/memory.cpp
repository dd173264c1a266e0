// Memory for maps: what one step gives back, the next one takes again. Fresh memory would come as
// zeroed pages at every step (a tenth of its time), and a heap of a few sizes of large pieces grows
// far beyond what is in use.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <new>
#include <vector>

#include "api.h"

namespace freetickets {
namespace {

constexpr size_t HUGE_PAGE = size_t{1} << 21;

struct Piece {
  char* start;
  size_t bytes;
};

size_t rounded(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

// From the system, in whole huge pages: the kernels walk over maps in long strides.
Piece map_piece(size_t bytes) {
  const size_t wanted = rounded(bytes), more = wanted + HUGE_PAGE;
  void* found = mmap(nullptr, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return {nullptr, 0};
  char* const raw = static_cast<char*>(found);
  const size_t before = rounded(reinterpret_cast<uintptr_t>(raw)) - reinterpret_cast<uintptr_t>(raw);
  if (before > 0) munmap(raw, before);
  if (before < HUGE_PAGE) munmap(raw + before + wanted, HUGE_PAGE - before);
#if defined(MADV_HUGEPAGE)
  madvise(raw + before, wanted, MADV_HUGEPAGE);
#endif
  return {raw + before, wanted};
}

class Pool {
 public:
  Piece take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto best = idle_.end();
    for (auto piece = idle_.begin(); piece != idle_.end(); ++piece)
      // A piece that is much too large is kept for what needs it.
      if (piece->bytes >= bytes && piece->bytes <= bytes + bytes / 8 + HUGE_PAGE &&
          (best == idle_.end() || piece->bytes <= best->bytes))
        best = piece;
    if (best != idle_.end()) {
      const Piece found = *best;
      idle_.erase(best);
      return found;
    }
    // As much as is new goes back, the longest idle first: the pool never outgrows what was needed.
    size_t freed = 0;
    auto last = idle_.begin();
    while (last != idle_.end() && freed < bytes) freed += last->bytes, munmap(last->start, last->bytes), ++last;
    idle_.erase(idle_.begin(), last);
    return map_piece(bytes);
  }

  void give_back(Piece piece) {
    const std::lock_guard<std::mutex> lock(mutex_);
    idle_.push_back(piece);
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Piece& piece : idle_) munmap(piece.start, piece.bytes);
    idle_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<Piece> idle_;  // the longest idle first
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
  const Piece piece = dimensions <= MOST_DIMENSIONS ? pool().take(bytes) : Piece{nullptr, 0};
  if (piece.start == nullptr) return nullptr;
  auto* owner = new Owner{};
  std::copy(shape, shape + dimensions, owner->shape);
  owner->piece = piece;
  constexpr int CPU = 1, FLOAT = 2;
  owner->managed = {{piece.start, {CPU, 0}, dimensions, {FLOAT, 32, 1}, owner->shape, nullptr, 0}, owner, give_back};
  return &owner->managed;
}

void ft_release_memory() { pool().clear(); }
