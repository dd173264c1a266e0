// Runs a loop on the caller's and other threads.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace freetickets {

// Calls `body(context, number)` on up to `threads` threads at once, the caller's among them, each with a
// number of its own below `threads`: the same one from call to call. It must not throw.
void run_team(void (*body)(void*, int), void* context, int threads);

// What a thread's scratch memory is used for, at the same time.
namespace slots {
enum Slot { PACKED, SUMS, TABLE, ENTRIES, PRODUCTS, COUNT };
}

// Memory of the calling thread that lasts: `slot` tells the uses that must not share it apart.
// Ask once a task, not in an inner loop: each access to a thread's own memory is a call. Null if there
// is no memory; what the slot held is gone then.
float* scratch(slots::Slot slot, size_t floats);

// Calls `body(first, last)` for pieces of 0..count. A thread has a range of them to itself, always the same
// one, so that it finds in its caches what it left there: from one core to another, memory may be far away.
// A thread that is done helps the next.
template <class Body>
void parallel(int64_t count, int64_t piece, int threads, Body&& body) {
  if (count <= 0) return;
  if (threads <= 1 || count <= piece) {
    body(int64_t{0}, count);
    return;
  }
  constexpr int MOST = 64;
  struct alignas(64) Range {
    std::atomic<int64_t> next;
    int64_t end;
  };
  struct Context {
    Range ranges[MOST];
    int64_t piece;
    int count;
    Body* body;
  } context;
  context.piece = piece, context.count = threads < MOST ? threads : MOST, context.body = &body;
  for (int t = 0; t < context.count; ++t) {
    context.ranges[t].next.store(count * t / context.count, std::memory_order_relaxed);
    context.ranges[t].end = count * (t + 1) / context.count;
  }
  run_team(
      [](void* raw, int number) {
        auto* c = static_cast<Context*>(raw);
        for (int i = 0; i < c->count; ++i) {
          Range& range = c->ranges[(number + i) % c->count];
          for (;;) {
            const int64_t first = range.next.fetch_add(c->piece, std::memory_order_relaxed);
            if (first >= range.end) break;
            (*c->body)(first, first + c->piece < range.end ? first + c->piece : range.end);
          }
        }
      },
      &context, threads);
}

}  // namespace freetickets
