// Takes the active weights out of a dense weight, and puts numbers back into their places.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "api.h"
#include "check.h"
#include "parallel.h"

namespace freetickets {
namespace {

constexpr int64_t PIECE = 1 << 14;  // floats that a thread looks at before it asks for more

int64_t count_nonzeros(const float* numbers, int64_t count) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) found += numbers[i] != 0.0f;
  return found;
}

Reason check_places(const float* weight, int64_t size, const int32_t* places, int64_t count, const float* values) {
  FT_NEED(size >= 0 && count >= 0 && count <= size, "a weight can't have more places than numbers");
  FT_TRY(check_numbers(size, weight));
  FT_TRY(check_numbers(count, places));
  FT_TRY(check_numbers(count, values));
  uint32_t largest = 0;  // a negative place is a very large one
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<uint32_t>(places[i]));
  FT_NEED(count == 0 || largest < size, "a place lies outside of the weight");
  return nullptr;
}

}  // namespace
}  // namespace freetickets

using namespace freetickets;

const char* ft_take(const float* weight, int64_t size, const int32_t* places, int64_t count, float* values,
                    int64_t* others, int threads) {
  FT_TRY(check_places(weight, size, places, count, values));
  FT_TRY(check_numbers(1, others));
  FT_TRY(check_threads(threads, threads));
  std::atomic<int64_t> nonzeros{0};
  parallel(size, PIECE, threads, [&](int64_t first, int64_t last) {
    nonzeros.fetch_add(count_nonzeros(weight + first, last - first), std::memory_order_relaxed);
  });
  parallel(count, PIECE, threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) values[i] = weight[places[i]];
    nonzeros.fetch_sub(count_nonzeros(values + first, last - first), std::memory_order_relaxed);
  });
  *others = nonzeros.load();
  return nullptr;
}

const char* ft_put(const float* values, const int32_t* places, int64_t count, float* weight, int64_t size,
                   int threads) {
  FT_TRY(check_places(weight, size, places, count, values));
  FT_TRY(check_threads(threads, threads));
  parallel(size, PIECE, threads, [&](int64_t first, int64_t last) {
    std::memset(weight + first, 0, sizeof(float) * size_t(last - first));
  });
  parallel(count, PIECE, threads, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) weight[places[i]] = values[i];
  });
  return nullptr;
}
