// Threads: those of the OpenMP runtime that PyTorch has loaded, so that no second pool spins beside
// it; without one, threads that are started for the call and end with it.
#include "parallel.h"

#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "api.h"

namespace freetickets {
namespace {

using GompParallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
GompParallel gomp_parallel = nullptr;

constexpr size_t PAGE = size_t{1} << 21;

struct Scratch {
  float* memory = nullptr;
  size_t floats = 0;
  ~Scratch() { std::free(memory); }
};

}  // namespace

void run_team(void (*body)(void*), void* context, int threads) {
  if (gomp_parallel != nullptr) {
    gomp_parallel(body, context, static_cast<unsigned>(threads), 0);
    return;
  }
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(body, context);
  body(context);
  for (auto& thread : others) thread.join();
}

float* scratch(int slot, size_t floats) {
  static thread_local Scratch slots[8];
  Scratch& mine = slots[slot];
  if (mine.floats < floats) {
    std::free(mine.memory);
    // Whole huge pages: the kernels walk through all of it, and page tables are no part of a tile.
    const size_t bytes = (floats * sizeof(float) + PAGE - 1) / PAGE * PAGE;
    mine.memory = static_cast<float*>(std::aligned_alloc(PAGE, bytes));
    if (mine.memory == nullptr) throw std::bad_alloc();
#if defined(__linux__)
    madvise(mine.memory, bytes, MADV_HUGEPAGE);
#endif
    mine.floats = floats;
  }
  return mine.memory;
}

}  // namespace freetickets

extern "C" void ft_use_openmp(void* function) {
  freetickets::gomp_parallel = reinterpret_cast<freetickets::GompParallel>(function);
}
