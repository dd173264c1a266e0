// Linear layers. Samples lie side by side: a feature is one row of `samples` floats, whole vectors, so that a
// weight multiplies a vector of samples. Unlike a convolution, a result's weights of one block lie side by side
// among the layer's values, in the order of the plan: they are read and written where they are.
#pragma once

#include <algorithm>

#include "check.h"
#include "layer.h"
#include "parallel.h"
#include "vector.h"

namespace FT_NAMESPACE {
namespace linear {

using freetickets::Layer;
using freetickets::Order;
using freetickets::Reason;
using freetickets::parallel;
using freetickets::scratch;

// The vectors of a tile of samples. 256 bytes a source let about a hundred sources stay in the first-level cache,
// and a weight is then multiplied with as many vectors as it takes to hide how long an addition takes. A weight's
// gradient is a sum over all samples: the more of them are multiplied before lanes are added up, the better.
constexpr int SUMS = LANES == 4 ? 8 : 64 / LANES, PRODUCTS = 8;

FT_INLINE const char* settled(const char* p) {
  asm("" : "+r"(p));  // else the address has an index register, and loads run at four fifths of the speed
  return p;
}

// What a visit of one result is: `count` of its weights, and the rows of the sources that they multiply.
struct Visit {
  const int32_t* taps;
  int count;
  const char* rows;
  ptrdiff_t pitch;  // from row to row, in bytes
};

template <size_t... I>
FT_INLINE void add_weights(const Visit& v, const float* values, Vector* acc, std::index_sequence<I...>) {
  for (int i = 0; i < v.count; ++i) {
    const char* row = settled(v.rows + v.taps[i] * v.pitch);
    const Vector weight = fill(values[i]);
    ((acc[I] += weight * load(row + I * VECTOR_BYTES)), ...);
  }
}

// sums = start or sums, plus what the weights of the visit add; then rectified, if no other visit adds to them.
template <int V, size_t... I>
FT_INLINE void visit_sums(const Visit& v, const float* values, const float* start, bool relu, float* sums,
                          std::index_sequence<I...> all) {
  Vector acc[V];
  if (start != nullptr)
    ((acc[I] = fill(*start)), ...);
  else
    ((acc[I] = load(sums + I * LANES)), ...);
  add_weights(v, values, acc, all);
  if (relu) ((acc[I] = positive(acc[I])), ...);
  ((store(sums + I * LANES, acc[I])), ...);
}

template <int V, size_t... I>
FT_INLINE Vector multiply(const Vector* g, const char* row, std::index_sequence<I...>) {
  Vector acc[2] = {};  // two chains: one would wait for its own additions
  ((acc[I % 2] += g[I] * load(row + I * VECTOR_BYTES)), ...);
  return acc[0] + acc[1];
}

// out[i] += the products of a result's gradient with the source of its i-th weight.
template <int V, size_t... I>
FT_INLINE void visit_products(const Visit& v, const float* gradient, float* out, std::index_sequence<I...> all) {
  Vector g[V];
  ((g[I] = load(gradient + I * LANES)), ...);
  const auto product = [&](int i) __attribute__((always_inline)) {
    return multiply<V>(g, settled(v.rows + v.taps[i] * v.pitch), all);
  };
  int i = 0;
  for (; i + 4 <= v.count; i += 4) {
    const Vector a = product(i), b = product(i + 1);
    const Pairs ab = add_pairs(a, b);
    const Vector c = product(i + 2), d = product(i + 3);
    add_four(add_pairs(ab, add_pairs(c, d)), out + i, 4);
  }
  if (i < v.count) {  // what is missing of four is a weight again, whose sum goes nowhere
    const int last = v.count - 1;
    const Pairs ab = add_pairs(product(i), product(std::min(i + 1, last)));
    const Pairs cd = add_pairs(product(std::min(i + 2, last)), product(last));
    add_four(add_pairs(ab, cd), out + i, v.count - i);
  }
}

// ---- all results of a range, and all blocks of sources

// `count` sources of a tile, one behind the other: rows as long as a power of two would share a few sets of the cache.
inline void pack(const float* from, int64_t samples, int count, int floats, float* packed) {
  for (int s = 0; s < count; ++s, from += samples, packed += floats)
    std::memcpy(packed, from, sizeof(float) * size_t(floats));
}

struct Work {
  const Order& order;
  int64_t samples;
  const float* sources;
  int first, last;  // the results
};

// values: those of the layer for the forward pass; in the order of the plan (`sorted`) for the input gradient.
template <int V>
void sums_of_tile(const Work& w, int64_t tile, const float* values, bool sorted, const float* bias, bool relu,
                  float* packed, float* results) {
  static const float zero = 0.0f;
  for (int b = 0; b < w.order.blocks(); ++b) {
    const int first = b * w.order.block, count = std::min(w.order.sources - first, w.order.block);
    pack(w.sources + w.samples * first + tile, w.samples, count, V * LANES, packed);
    const int32_t* rows = w.order.row(b, 0);
    const bool rectified = relu && b == w.order.blocks() - 1;
    for (int o = w.first; o < w.last; ++o) {
      const int begin = rows[o];
      const Visit visit{w.order.taps + begin, rows[o + 1] - begin, reinterpret_cast<const char*>(packed),
                        V * VECTOR_BYTES};
      if (visit.count == 0 && b > 0 && !rectified) continue;
      const float* mine = visit.count == 0 ? values : values + (sorted ? begin : w.order.permutation[begin]);
      const float* start = b > 0 ? nullptr : bias != nullptr ? bias + o : &zero;
      visit_sums<V>(visit, mine, start, rectified, results + w.samples * o + tile, std::make_index_sequence<V>{});
    }
  }
}

template <int V>
void products_of_tile(const Work& w, int64_t tile, const float* gradients, float* packed, float* dvalues) {
  // A tile that is the whole batch lies as it would be packed.
  const bool whole = w.samples == V * LANES;
  for (int b = 0; b < w.order.blocks(); ++b) {
    const int first = b * w.order.block, count = std::min(w.order.sources - first, w.order.block);
    const float* from = w.sources + w.samples * first + tile;
    if (!whole) pack(from, w.samples, count, V * LANES, packed), from = packed;
    const int32_t* rows = w.order.row(b, 0);
    for (int o = w.first; o < w.last; ++o) {
      const int begin = rows[o];
      const Visit visit{w.order.taps + begin, rows[o + 1] - begin, reinterpret_cast<const char*>(from),
                        V * VECTOR_BYTES};
      if (visit.count == 0) continue;
      visit_products<V>(visit, gradients + w.samples * o + tile, dvalues + w.order.permutation[begin],
                        std::make_index_sequence<V>{});
    }
  }
}

// Calls `body` with the number of vectors as a constant.
template <int MOST, class Body>
FT_INLINE void with_vectors(int vectors, Body&& body) {
  if constexpr (MOST > 1) {
    if (vectors < MOST) return with_vectors<MOST - 1>(vectors, body);
  }
  body(std::integral_constant<int, MOST>{});
}

// Shares the results out among threads, each with all samples: two that wrote to neighbouring lines, again and again,
// would take these from each other. What a thread owns does not change a bit of it.
template <int MOST, class Body>
Reason for_results(const Order& order, int64_t samples, const float* sources, int threads, Body&& body) {
  std::atomic<bool> failed{false};
  const int64_t parts = std::min<int64_t>(order.results, threads == 1 ? 1 : 2 * threads);
  parallel(parts, 1, threads, [&](int64_t begin, int64_t end) {
    float* packed = scratch(freetickets::slots::PACKED, size_t(order.block) * MOST * LANES);
    if (packed == nullptr) {
      failed = true;
      return;
    }
    const Work work{order, samples, sources, int(order.results * begin / parts), int(order.results * end / parts)};
    body(work, packed);
  });
  FT_NEED(!failed, FT_OUT_OF_MEMORY);
  return nullptr;
}

// Calls `body` with the start of each tile of samples, and its vectors as a constant.
template <int MOST, class Body>
FT_INLINE void for_tiles(int64_t samples, Body&& body) {
  for (int64_t tile = 0; tile < samples; tile += MOST * LANES)
    with_vectors<MOST>(int(std::min<int64_t>(samples - tile, MOST * LANES) / LANES),
                       [&](auto vectors) { body(tile, vectors); });
}

// results[o] = relu?(bias[o] + the sum over its weights of value * source).
inline Reason sums(const Order& order, int64_t samples, const float* sources, const float* values, bool sorted,
                   const float* bias, bool relu, float* results, int threads) {
  return for_results<SUMS>(order, samples, sources, threads, [&](const Work& work, float* packed) {
    for_tiles<SUMS>(samples, [&](int64_t tile, auto vectors) {
      sums_of_tile<vectors()>(work, tile, values, sorted, bias, relu, packed, results);
    });
  });
}

inline Reason forward(const Layer& layer, int64_t samples, const float* x, const float* values, const int32_t* plan,
                      int64_t nonzeros, const float* bias, int relu, float* y, int threads) {
  return sums(forward_order(layer, nonzeros, plan), samples, x, values, false, bias, relu != 0, y, threads);
}

inline Reason input_gradient(const Layer& layer, int64_t samples, const float* dy, const float* values,
                             const int32_t* plan, int64_t nonzeros, float* dx, int threads) {
  const Order order = transposed_order(layer, nonzeros, plan);
  float* mine = scratch(freetickets::slots::ENTRIES, size_t(nonzeros));
  FT_NEED(mine != nullptr || nonzeros == 0, FT_OUT_OF_MEMORY);
  parallel(nonzeros, 1 << 15, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) mine[i] = values[order.permutation[i]];
  });
  return sums(order, samples, dy, mine, true, nullptr, false, dx, threads);
}

inline Reason weight_gradient(const Layer& layer, int64_t samples, const float* x, const float* dy,
                              const int32_t* plan, int64_t nonzeros, float* dvalues, int threads) {
  const Order order = forward_order(layer, nonzeros, plan);
  return for_results<PRODUCTS>(order, samples, x, threads, [&](const Work& work, float* packed) {
    for (int b = 0; b < order.blocks(); ++b) {
      const int32_t* rows = order.row(b, 0);
      for (int o = work.first; o < work.last; ++o)
        if (rows[o] < rows[o + 1]) std::fill_n(dvalues + order.permutation[rows[o]], rows[o + 1] - rows[o], 0.0f);
    }
    for_tiles<PRODUCTS>(samples, [&](int64_t tile, auto vectors) {
      products_of_tile<vectors()>(work, tile, dy, packed, dvalues);
    });
  });
}

// masked = dy where ReLU let the result y pass (without y: not written), dbias = its sums over the samples.
inline void rectify(int64_t samples, int results, const float* dy, const float* y, float* masked, float* dbias,
                    int threads) {
  const int64_t grain = std::max<int64_t>(1, (1 << 14) / samples);
  parallel(results, grain, threads, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      Vector sum{};
      for (int64_t i = samples * o; i < samples * (o + 1); i += LANES) {
        Vector g = load(dy + i);
        if (y != nullptr) {
          g = load(y + i) <= 0.0f ? Vector{} : g;
          store(masked + i, g);
        }
        sum += g;
      }
      if (dbias == nullptr) continue;
      dbias[o] = 0;
      for (int lane = 0; lane < LANES; ++lane) dbias[o] += sum[lane];
    }
  });
}

// The gradients of relu?(layer); those that are nullptr are not wanted. y: the result, if ReLU is a part of it.
inline Reason backward(const Layer& layer, int64_t samples, const float* x, const float* y, const float* dy,
                       const float* values, const int32_t* plan, int64_t nonzeros, float* dx, float* dvalues,
                       float* dbias, int threads) {
  if (y != nullptr || dbias != nullptr) {
    float* masked = nullptr;
    if (y != nullptr) {
      masked = scratch(freetickets::slots::SUMS, size_t(samples) * size_t(layer.outputs));
      FT_NEED(masked != nullptr, FT_OUT_OF_MEMORY);
    }
    rectify(samples, layer.outputs, dy, y, masked, dbias, threads);
    if (y != nullptr) dy = masked;
  }
  if (dx != nullptr) FT_TRY(input_gradient(layer, samples, dy, values, plan, nonzeros, dx, threads));
  if (dvalues != nullptr) FT_TRY(weight_gradient(layer, samples, x, dy, plan, nonzeros, dvalues, threads));
  return nullptr;
}

}  // namespace linear
}  // namespace FT_NAMESPACE
