// Threads: those of the OpenMP runtime that PyTorch has loaded, so that no second pool spins beside
// it; without one, threads that are started for the call and end with it.
#include "parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "api.h"

namespace freetickets {
namespace {

using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
using ThreadNumber = int (*)();
std::atomic<GompParallel> gomp_parallel{nullptr};
std::atomic<ThreadNumber> thread_number{nullptr};

struct Work {
  void (*body)(void*, int);
  void* context;
  std::atomic<int> next{0};  // the number of the next thread that comes, if nobody tells which one it is
};

// Where a thread can't be started, those that there are do all of the work.
void run_own_threads(Work& work, int threads) {
  constexpr int MOST = 1024;
  pthread_t others[MOST];
  int started = 0;
  const auto run = [](void* raw) -> void* {
    auto* mine = static_cast<Work*>(raw);
    mine->body(mine->context, 1 + mine->next.fetch_add(1));
    return nullptr;
  };
  const int wanted = std::min(MOST, threads - 1);
  while (started < wanted && pthread_create(&others[started], nullptr, run, &work) == 0) ++started;
  work.body(work.context, 0);
  for (int i = 0; i < started; ++i) pthread_join(others[i], nullptr);
}

constexpr size_t PAGE = size_t{1} << 21;

struct Scratch {
  float* memory;
  size_t floats;
};

// What a thread keeps. Not `thread_local`: where there is no memory to make such a variable, or to
// note that it must be destroyed, the C library ends the process.
struct Slots {
  Scratch slot[slots::COUNT];
};

void free_slots(void* raw) {
  auto* mine = static_cast<Slots*>(raw);
  for (Scratch& each : mine->slot) std::free(each.memory);
  std::free(mine);
}

// Null if there is no memory.
Slots* slots_of_thread() {
  static pthread_key_t key;
  static const bool made = pthread_key_create(&key, free_slots) == 0;
  if (!made) return nullptr;
  auto* mine = static_cast<Slots*>(pthread_getspecific(key));
  if (mine == nullptr) {
    mine = static_cast<Slots*>(std::calloc(1, sizeof(Slots)));
    if (mine != nullptr && pthread_setspecific(key, mine) != 0) {
      std::free(mine);
      mine = nullptr;
    }
  }
  return mine;
}

}  // namespace

void run_team(void (*body)(void*, int), void* context, int threads) {
  Work work{body, context};
  const GompParallel start = gomp_parallel.load(std::memory_order_acquire);
  if (start == nullptr) return run_own_threads(work, threads);
  const auto run = [](void* raw) {
    auto* mine = static_cast<Work*>(raw);
    const ThreadNumber number = thread_number.load(std::memory_order_acquire);
    mine->body(mine->context, number != nullptr ? number() : mine->next.fetch_add(1));
  };
  start(run, &work, static_cast<unsigned>(threads), 0);
}

float* scratch(slots::Slot slot, size_t floats) {
  Slots* const all = slots_of_thread();
  if (all == nullptr) return nullptr;
  Scratch& mine = all->slot[slot];
  if (mine.memory == nullptr || mine.floats < floats) {
    // Given back first: both together may be more than there is.
    std::free(mine.memory);
    mine = {nullptr, 0};
    if (floats > (SIZE_MAX - PAGE) / sizeof(float)) return nullptr;
    // Whole huge pages: the kernels walk through all of it, and page tables are no part of a tile.
    const size_t bytes = std::max(PAGE, (floats * sizeof(float) + PAGE - 1) / PAGE * PAGE);
    mine.memory = static_cast<float*>(std::aligned_alloc(PAGE, bytes));
    if (mine.memory == nullptr) return nullptr;
#if defined(__linux__)
    madvise(mine.memory, bytes, MADV_HUGEPAGE);
#endif
    mine.floats = floats;
  }
  return mine.memory;
}

}  // namespace freetickets

void ft_use_openmp(void* parallel, void* number) {
  freetickets::thread_number = reinterpret_cast<freetickets::ThreadNumber>(number);
  freetickets::gomp_parallel = reinterpret_cast<freetickets::GompParallel>(parallel);
}
