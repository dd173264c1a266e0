// Memory for maps: what one step gives back, the next one takes again. Fresh memory would come as
// zeroed pages at every step (a tenth of its time), and a heap of a few sizes of large pieces grows
// far beyond what is in use.
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

#include "api.h"

namespace freetickets {
namespace {

constexpr size_t HUGE_PAGE = size_t{1} << 21;
constexpr size_t MOST_BYTES = size_t{1} << 48;  // beyond what a machine can address

// Consecutive pages; `region` is where the memory begins that the system gave as a whole. The pieces
// of a region, idle ones and others, fill it, and follow each other in the list of all pieces.
struct Piece {
  char* start;
  size_t bytes;
  char* region;
  bool idle;
  Piece* before;
  Piece* after;
};

size_t rounded(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

// From the system, in whole huge pages: the kernels walk over maps in long strides.
char* map_region(size_t bytes) {
  const size_t more = bytes + HUGE_PAGE;
  void* found = mmap(nullptr, more, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  char* const raw = static_cast<char*>(found);
  const size_t before = rounded(reinterpret_cast<uintptr_t>(raw)) - reinterpret_cast<uintptr_t>(raw);
  if (before > 0) munmap(raw, before);
  if (before < HUGE_PAGE) munmap(raw + before + bytes, HUGE_PAGE - before);
#if defined(MADV_HUGEPAGE)
  madvise(raw + before, bytes, MADV_HUGEPAGE);
#endif
  return raw + before;
}

// Hands out the smallest idle piece that is large enough, and keeps the rest of it; pieces that lie
// side by side grow together again. Giving back needs no memory: it can't fail.
class Pool {
 public:
  // Null if there is no memory.
  Piece* take(size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes = rounded(bytes);
    Piece* piece = smallest(bytes);
    if (piece == nullptr) piece = fresh(bytes);
    if (piece == nullptr || !split(piece, bytes)) return nullptr;
    piece->idle = false;
    return piece;
  }

  void give_back(Piece* piece) {
    const std::lock_guard<std::mutex> lock(mutex_);
    piece->idle = true;
    Piece* const before = piece->before;
    join(piece);
    if (before != nullptr && before->idle) join(before);
  }

  void clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    release(SIZE_MAX);
  }

 private:
  Piece* smallest(size_t bytes) {
    Piece* best = nullptr;
    for (Piece* piece = first_; piece != nullptr; piece = piece->after)
      if (piece->idle && piece->bytes >= bytes && (best == nullptr || piece->bytes < best->bytes)) best = piece;
    return best;
  }

  // A region of its own. It is idle.
  Piece* fresh(size_t bytes) {
    release(bytes);
    auto* piece = static_cast<Piece*>(std::malloc(sizeof(Piece)));
    char* const start = piece == nullptr ? nullptr : map_region(bytes);
    if (start == nullptr) {
      std::free(piece);
      return nullptr;
    }
    *piece = {start, bytes, start, true, nullptr, nullptr};
    Piece* before = nullptr;
    for (Piece* each = first_; each != nullptr && each->start < start; each = each->after) before = each;
    insert(piece, before);
    return piece;
  }

  // Leaves so many bytes to a piece, and the rest to a new one; false if there is no memory to note it.
  bool split(Piece* piece, size_t bytes) {
    if (piece->bytes == bytes) return true;
    auto* rest = static_cast<Piece*>(std::malloc(sizeof(Piece)));
    if (rest == nullptr) return false;
    *rest = {piece->start + bytes, piece->bytes - bytes, piece->region, true, nullptr, nullptr};
    piece->bytes = bytes;
    insert(rest, piece);
    return true;
  }

  // Has an idle piece take in the one that follows it, if it can.
  void join(Piece* piece) {
    Piece* const after = piece->after;
    if (after == nullptr || !after->idle || after->region != piece->region) return;
    piece->bytes += after->bytes;
    remove(after);
  }

  void insert(Piece* piece, Piece* before) {
    piece->before = before;
    piece->after = before == nullptr ? first_ : before->after;
    (before == nullptr ? first_ : before->after) = piece;
    if (piece->after != nullptr) piece->after->before = piece;
  }

  void remove(Piece* piece) {
    (piece->before == nullptr ? first_ : piece->before->after) = piece->after;
    if (piece->after != nullptr) piece->after->before = piece->before;
    std::free(piece);
  }

  // Gives idle regions back, this many bytes if there are so many: the pool never outgrows what was
  // needed at once by more than its gaps.
  void release(size_t bytes) {
    size_t freed = 0;
    for (Piece* piece = first_; piece != nullptr && freed < bytes;) {
      Piece* const after = piece->after;
      const bool is_all = piece->start == piece->region && (after == nullptr || after->region != piece->region);
      if (piece->idle && is_all) {
        freed += piece->bytes;
        munmap(piece->start, piece->bytes);
        remove(piece);
      }
      piece = after;
    }
  }

  std::mutex mutex_;
  Piece* first_ = nullptr;  // in the order of their addresses
};

// Never destroyed: tensors may outlive everything else at the end of the process.
Pool& pool() {
  alignas(Pool) static char memory[sizeof(Pool)];
  static Pool* const found = new (memory) Pool;
  return *found;
}

// The bytes of a tensor; 0 if it has none, or more than there can be.
size_t bytes_of(const int64_t* shape, int dimensions) {
  size_t bytes = sizeof(float);
  for (int i = 0; i < dimensions; ++i) {
    if (shape[i] <= 0 || static_cast<size_t>(shape[i]) > MOST_BYTES / bytes) return 0;
    bytes *= static_cast<size_t>(shape[i]);
  }
  return bytes;
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
  Piece* piece;
  int64_t shape[MOST_DIMENSIONS];
};

void give_back(DLManagedTensor* managed) {
  auto* owner = static_cast<Owner*>(managed->context);
  pool().give_back(owner->piece);
  std::free(owner);
}

}  // namespace
}  // namespace freetickets

using namespace freetickets;

void* ft_new_tensor(const int64_t* shape, int dimensions) {
  if (shape == nullptr || dimensions < 0 || dimensions > MOST_DIMENSIONS) return nullptr;
  const size_t bytes = bytes_of(shape, dimensions);
  auto* owner = bytes == 0 ? nullptr : static_cast<Owner*>(std::malloc(sizeof(Owner)));
  if (owner == nullptr) return nullptr;
  owner->piece = pool().take(bytes);
  if (owner->piece == nullptr) {
    std::free(owner);
    return nullptr;
  }
  std::copy(shape, shape + dimensions, owner->shape);
  constexpr int CPU = 1, FLOAT = 2;
  owner->managed = {
      {owner->piece->start, {CPU, 0}, dimensions, {FLOAT, 32, 1}, owner->shape, nullptr, 0}, owner, give_back};
  return &owner->managed;
}

void ft_release_memory() { pool().clear(); }
