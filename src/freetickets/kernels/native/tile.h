// The inner loops: a tile of sums stays in registers while the non-zeros stream by.
#pragma once

#include "layer.h"
#include "packing.h"
#include "vector.h"

namespace FT_NAMESPACE {

using freetickets::Entry;

// Loops over the vectors of a tile are fold expressions: a loop that the compiler did not unroll
// would keep the sums in memory, at a third of the speed.
template <bool ALIGNED>
FT_INLINE Vector fetch(const char* p) {
  if constexpr (ALIGNED) return load(p);
  return load_loose(p);
}

// Keeps the compiler from folding an address into its uses: loads with an index register besides the
// base run at four fifths of the speed.
FT_INLINE const char* settle(const char* p) {
  asm("" : "+r"(p));
  return p;
}

template <int V, bool ALIGNED, size_t... I>
FT_INLINE void add_row(Vector* acc, Vector w, const char* p, std::index_sequence<I...>) {
  ((acc[I] += w * fetch<ALIGNED>(p + I * VECTOR_BYTES)), ...);
}

template <int R, int V, bool ALIGNED, size_t... I, size_t... J>
FT_INLINE void stream_entries(const Entry* e, const Entry* end, const char* packed, ptrdiff_t row,
                              const float* start, float* sums, std::index_sequence<I...>,
                              std::index_sequence<J...>) {
  Vector acc[R * V];
  ((acc[I] = load(start + I * LANES)), ...);
  for (; e != end; ++e) {
    // One load for both halves of an entry: the tile needs every load that the core can make.
    int64_t both;
    std::memcpy(&both, e, sizeof both);
    const char* p = settle(packed + static_cast<int32_t>(both));
    const Vector w = fill_bits(static_cast<int32_t>(both >> 32));
    ((add_row<V, ALIGNED>(acc + J * V, w, p, std::make_index_sequence<V>{}), p = settle(p + row)), ...);
  }
  ((store(sums + I * LANES, acc[I])), ...);
}

// What is done to a block of sources that is packed: for each result, its entries are added up.
struct Visits {
  const Entry* entries;
  const int32_t* rows;       // where the entries of a result begin
  int first, last;           // the results
  const char* packed;
  ptrdiff_t row;             // from row to row of what is packed, in bytes
  const float* before;       // what the sums start from,
  ptrdiff_t before_step;     // from result to result
  float* sums;
  ptrdiff_t sums_step;
  Ahead* ahead;
  void (*finish)(const void* context, int result, const float* sums);  // null: sums go on
  const void* context;
};

// sums[o][r][v] = before[o][r][v] + the sum over o's entries of value * packed[offset + r * row + v].
template <int R, int V, bool ALIGNED>
void add_entries(const Visits& v) {
  const float* before = v.before;
  float* sums = v.sums;
  for (int o = v.first; o < v.last; ++o, before += v.before_step, sums += v.sums_step) {
    v.ahead->ask();
    stream_entries<R, V, ALIGNED>(v.entries + v.rows[o], v.entries + v.rows[o + 1], v.packed, v.row, before,
                                  sums, std::make_index_sequence<R * V>{}, std::make_index_sequence<R>{});
    if (v.finish != nullptr) v.finish(v.context, o, sums);
  }
}

template <int V, int FIRST, size_t... I>
FT_INLINE void multiply_row(Vector* acc, const Vector* g, const char* p, std::index_sequence<I...>) {
  ((acc[(FIRST + I) % 2] += g[I] * load(p + I * VECTOR_BYTES)), ...);
}

template <int R, int V, size_t... J>
FT_INLINE Vector multiply_tile(const Vector* g, const char* p, ptrdiff_t row, std::index_sequence<J...>) {
  Vector acc[2] = {};  // two chains: one would wait for its own additions
  ((multiply_row<V, int(J) * V>(acc, g + J * V, p, std::make_index_sequence<V>{}), p = settle(p + row)), ...);
  return acc[0] + acc[1];
}

template <int R, int V, size_t... I>
FT_INLINE void stream_products(const int32_t* offsets, int count, const char* packed, ptrdiff_t row,
                               const float* gradient, float* out, std::index_sequence<I...>) {
  Vector g[R * V];
  ((g[I] = load(gradient + I * LANES)), ...);
  for (; count > 0; count -= 4, offsets += 4, out += 4) {
    // Four at a time, also where fewer are left: what lies behind a row of offsets are offsets too.
    int64_t pair[2];
    std::memcpy(pair, offsets, sizeof pair);
    const auto product = [&](int64_t offset) __attribute__((always_inline)) {
      return multiply_tile<R, V>(g, settle(packed + static_cast<int32_t>(offset)), row,
                                 std::make_index_sequence<R>{});
    };
    const Vector a = product(pair[0]), b = product(pair[0] >> 32);
    const Pairs ab = add_pairs(a, b);
    const Vector c = product(pair[1]), d = product(pair[1] >> 32);
    add_four(add_pairs(ab, add_pairs(c, d)), out, count);
  }
}

// The same for weight gradients: `offsets` instead of entries, and a product for each.
struct Products {
  const int32_t* offsets;  // 3 more must lie behind the last one
  const int32_t* rows;
  int first, last;
  const char* packed;
  ptrdiff_t row;
  const float* gradients;  // of the tile, result by result
  ptrdiff_t gradients_step;
  float* products;
  Ahead* ahead;
};

// products[i] += the sum over r, v and lanes of gradient[o][r][v] * packed[offsets[i] + r * row + v],
// for the entries i of each result o.
template <int R, int V>
void add_products(const Products& p) {
  const float* gradient = p.gradients;
  for (int o = p.first; o < p.last; ++o, gradient += p.gradients_step) {
    p.ahead->ask();
    stream_products<R, V>(p.offsets + p.rows[o], p.rows[o + 1] - p.rows[o], p.packed, p.row, gradient,
                          p.products + p.rows[o], std::make_index_sequence<R * V>{});
  }
}

// ---- the tiles there are: R rows of V vectors, so many sums at the most as registers hold besides a weight and
// what is on its way; a row of many vectors serves layers without a map (linear, 1x1).

constexpr int MOST = LANES == 16 ? 21 : 14;

using AddEntries = void (*)(const Visits&);
using AddProducts = void (*)(const Products&);

template <size_t I>
constexpr AddEntries entries_at(bool aligned) {
  constexpr int R = I / MOST + 1, V = I % MOST + 1;
  if constexpr (R * V > MOST) return nullptr;
  else if (aligned) return &add_entries<R, V, true>;
  else return &add_entries<R, V, false>;
}

template <size_t I>
constexpr AddProducts products_at() {
  constexpr int R = I / MOST + 1, V = I % MOST + 1;
  if constexpr (R * V > MOST) return nullptr;
  else return &add_products<R, V>;
}

template <size_t... I>
AddEntries find_entries(size_t at, bool aligned, std::index_sequence<I...>) {
  static constexpr AddEntries strict[] = {entries_at<I>(true)...}, loose[] = {entries_at<I>(false)...};
  return aligned ? strict[at] : loose[at];
}

template <size_t... I>
AddProducts find_products(size_t at, std::index_sequence<I...>) {
  static constexpr AddProducts all[] = {products_at<I>()...};
  return all[at];
}

inline AddEntries entries_kernel(int rows, int vectors, bool aligned) {
  const size_t at = size_t(rows - 1) * MOST + vectors - 1;
  return find_entries(at, aligned, std::make_index_sequence<MOST * MOST>{});
}

inline AddProducts products_kernel(int rows, int vectors) {
  const size_t at = size_t(rows - 1) * MOST + vectors - 1;
  return find_products(at, std::make_index_sequence<MOST * MOST>{});
}

}  // namespace FT_NAMESPACE
