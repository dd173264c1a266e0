// Runs a loop on the caller's and other threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace freetickets {

// Calls `body(context)` on up to `threads` threads at once, the caller's among them. It must not throw.
void run_team(void (*body)(void*), void* context, int threads);

// What a thread's scratch memory is used for, at the same time.
namespace slots {
enum Slot { PACKED, SUMS, TABLE, ENTRIES, PRODUCTS, COUNT };
}

// Memory of the calling thread that lasts: `slot` tells the uses that must not share it apart.
// Ask once a task, not in an inner loop: each access to a thread's own memory is a call. Null if there
// is no memory; what the slot held is gone then.
float* scratch(slots::Slot slot, size_t floats);

// Calls `body(first, last)` for pieces of 0..count, handed out as threads become free.
template <class Body>
void parallel(int64_t count, int64_t piece, int threads, Body&& body) {
  if (count <= 0) return;
  if (threads <= 1 || count <= piece) {
    body(int64_t{0}, count);
    return;
  }
  struct Context {
    std::atomic<int64_t> next;
    int64_t count, piece;
    Body* body;
  } context{{0}, count, piece, &body};
  run_team(
      [](void* raw) {
        auto* c = static_cast<Context*>(raw);
        for (;;) {
          const int64_t first = c->next.fetch_add(c->piece, std::memory_order_relaxed);
          if (first >= c->count) return;
          (*c->body)(first, first + c->piece < c->count ? first + c->piece : c->count);
        }
      },
      &context, threads);
}

}  // namespace freetickets
