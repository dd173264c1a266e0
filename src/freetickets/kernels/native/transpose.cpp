// From PyTorch's layout, where the floats of a sample lie together, to ours, where samples lie side by
// side; and back.
#include <algorithm>

#include "api.h"
#include "check.h"
#include "parallel.h"

namespace freetickets {
namespace {

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t Places __attribute__((vector_size(16)));

#if defined(__clang__)
#define FT_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define FT_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Places{__VA_ARGS__})
#endif

inline void transpose_block(const float* from, int64_t from_row, float* to, int64_t to_row) {
  const auto row = [&](int i) { return *reinterpret_cast<const Four*>(from + from_row * i); };
  const Four a = row(0), b = row(1), c = row(2), d = row(3);
  const Four ab = FT_SHUFFLE(a, b, 0, 4, 1, 5), ab_high = FT_SHUFFLE(a, b, 2, 6, 3, 7);
  const Four cd = FT_SHUFFLE(c, d, 0, 4, 1, 5), cd_high = FT_SHUFFLE(c, d, 2, 6, 3, 7);
  const auto store = [&](int i, Four v) { *reinterpret_cast<Four*>(to + to_row * i) = v; };
  store(0, FT_SHUFFLE(ab, cd, 0, 1, 4, 5));
  store(1, FT_SHUFFLE(ab, cd, 2, 3, 6, 7));
  store(2, FT_SHUFFLE(ab_high, cd_high, 0, 1, 4, 5));
  store(3, FT_SHUFFLE(ab_high, cd_high, 2, 3, 6, 7));
}

// to[c][r] = from[r][c] for r < rows and first <= c < last.
void transpose(const float* from, int64_t from_row, int64_t rows, int64_t first, int64_t last, float* to,
               int64_t to_row) {
  // A cache line of each row at a time: more rows than the cache has ways may lie a power of two apart.
  for (int64_t start = first; start < last; start += 16) {
    const int64_t end = std::min(start + 16, last);
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
      int64_t c = start;
      for (; c + 4 <= end; c += 4) transpose_block(from + from_row * r + c, from_row, to + to_row * c + r, to_row);
      for (; c < end; ++c)
        for (int64_t i = r; i < r + 4; ++i) to[to_row * c + i] = from[from_row * i + c];
    }
    for (; r < rows; ++r)
      for (int64_t c = start; c < end; ++c) to[to_row * c + r] = from[from_row * r + c];
  }
}

// Calls `body(group, its samples, first, last)` for parts of the groups: the places first..last of each
// of its samples.
template <class Body>
void for_parts(const Norm& n, int threads, Body&& body) {
  const int64_t size = int64_t{n.channels} * n.positions;
  const int64_t part = std::max<int64_t>(16, 8192 / n.lanes), parts = (size + part - 1) / part;
  parallel(n.groups * parts, 4, threads, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t group = task / parts, first = task % parts * part;
      const int64_t samples = std::min<int64_t>(n.lanes, n.batch - group * n.lanes);
      body(group, samples, first, std::min(first + part, size));
    }
  });
}

void to_groups(const Norm& n, const float* x, float* y, int threads) {
  const int64_t size = int64_t{n.channels} * n.positions, lanes = n.lanes;
  for_parts(n, threads, [=](int64_t group, int64_t samples, int64_t first, int64_t last) {
    float* to = y + group * size * lanes;
    transpose(x + group * size * lanes, size, samples, first, last, to, lanes);
    if (samples < lanes)
      for (int64_t i = first; i < last; ++i) std::fill(to + i * lanes + samples, to + (i + 1) * lanes, 0.0f);
  });
}

void from_groups(const Norm& n, const float* x, float* y, int threads) {
  const int64_t size = int64_t{n.channels} * n.positions, lanes = n.lanes;
  for_parts(n, threads, [=](int64_t group, int64_t samples, int64_t first, int64_t last) {
    const float* from = x + (group * size + first) * lanes;
    transpose(from, lanes, last - first, 0, samples, y + group * size * lanes + first, size);
  });
}

// The two differ in nothing else.
const char* convert(void (*conversion)(const Norm&, const float*, float*, int), const GivenNorm* given,
                    const float* x, float* y, int threads) {
  Norm n;
  FT_TRY(check(given, n));
  FT_TRY(check_threads(threads, threads));
  if (n.floats() == 0) return nullptr;
  FT_NEED(x != nullptr && y != nullptr, "there is no memory for maps");
  conversion(n, x, y, threads);
  return nullptr;
}

}  // namespace
}  // namespace freetickets

using namespace freetickets;

const char* ft_to_groups(const GivenNorm* n, const float* x, float* y, int threads) {
  return convert(to_groups, n, x, y, threads);
}

const char* ft_from_groups(const GivenNorm* n, const float* x, float* y, int threads) {
  return convert(from_groups, n, x, y, threads);
}
