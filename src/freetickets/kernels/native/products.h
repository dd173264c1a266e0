// Matrix products of weights and maps, a vector of samples at a time: what Winograd's way multiplies, and convolutions
// by 1x1 whose weights are nearly dense.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "check.h"
#include "geometry.h"
#include "parallel.h"
#include "vector.h"

namespace FT_NAMESPACE {
namespace products {

using freetickets::Fusion;
using freetickets::Reason;
using freetickets::parallel;
using freetickets::scratch;
using namespace freetickets::slots;

inline int round_up(int a, int b) { return (a + b - 1) / b * b; }

// Sums of so many results and columns stay in registers.
#if FT_LANES == 16
constexpr int ROWS = 6, COLUMNS = 4;
#else
constexpr int ROWS = 4, COLUMNS = 3;
#endif

// Weights as they are multiplied: a vector that says for whom they are, then [frequency][block of results][source][ROWS].
// Those of a 1x1 kernel have one frequency.
constexpr int HEADER = 16;
constexpr int32_t MAGIC = 0x57494e30 + ROWS;

// Refuses memory that does not hold weights of this layer for this instruction set.
inline Reason check_weights(const Layer& l, const float* u) {
  int32_t header[4];
  std::memcpy(header, u, sizeof header);
  FT_NEED(header[0] == MAGIC && header[1] == l.inputs && header[2] == l.outputs && header[3] == l.taps(),
          "these are no transformed weights of this layer, for this instruction set");
  return nullptr;
}

// Weights lie in memory that no processor asks early enough by itself. In floats.
constexpr int WEIGHTS_AHEAD = 1024;

// The products of results and a panel of columns. The weights of a block of results begin `step` floats after those of
// the one before.
using Multiply = void (*)(const float* u, int64_t step, const float* v, int sources, float* m, int64_t row);

template <int WIDTH, size_t... I>
FT_INLINE void multiply(const float* u, int64_t step, const float* v, int sources, float* m, int64_t row,
                        std::index_sequence<I...>) {
  constexpr int BLOCKS = (sizeof...(I) / WIDTH + ROWS - 1) / ROWS;
  Vector sums[sizeof...(I)];
  ((sums[I] = Vector{}), ...);
  const int64_t ahead = BLOCKS == 1 ? WEIGHTS_AHEAD : BLOCKS * step;  // what follows a block is asked for with others
  for (int s = 0; s < sources; ++s, u += ROWS, v += WIDTH * LANES) {
    for (int b = 0; b < BLOCKS; ++b) __builtin_prefetch(u + b * step + ahead, 0, 2);
    ((sums[I] += fill(u[I / WIDTH / ROWS * step + I / WIDTH % ROWS]) * load(v + I % WIDTH * LANES)), ...);
  }
  (store(m + (I / WIDTH) * row + I % WIDTH * LANES, sums[I]), ...);
}

template <int WIDTH, size_t RESULTS>
void multiply(const float* u, int64_t step, const float* v, int sources, float* m, int64_t row) {
  multiply<WIDTH>(u, step, v, sources, m, row, std::make_index_sequence<RESULTS * WIDTH>{});
}

// The last block may have fewer results: of 32, it has 2, and whole ones would cost a ninth more.
template <int WIDTH, size_t... R>
Multiply find_multiply(int results, std::index_sequence<R...>) {
  static constexpr Multiply all[] = {multiply<WIDTH, R + 1>...};
  return all[results - 1];
}

// How panels of so many columns are multiplied. Where there are fewer than registers have room for, several blocks of
// results are multiplied at once instead.
struct Multiplier {
  int width, together;  // columns of a panel, blocks at once
  Multiply several, one, last;
};

template <int WIDTH>
Multiplier multiplier_of_width(int results) {
  constexpr int TOGETHER = COLUMNS / WIDTH;
  constexpr std::make_index_sequence<ROWS> UP_TO_ROWS{};
  return {WIDTH, TOGETHER, multiply<WIDTH, TOGETHER * ROWS>, multiply<WIDTH, ROWS>,
          find_multiply<WIDTH>((results - 1) % ROWS + 1, UP_TO_ROWS)};
}

inline Multiplier find_multiplier(int64_t columns, int results) {
  if (columns == 1) return multiplier_of_width<1>(results);
  return columns == 2 ? multiplier_of_width<2>(results) : multiplier_of_width<COLUMNS>(results);
}

// Asks the memory for the same place of the next channel: no processor guesses steps of a whole channel.
FT_INLINE void ask(const float* p) { __builtin_prefetch(p, 0, 3); }

// Does pieces of work: one thread does one if there are enough of them, for what it makes stays in its
// caches; else all threads do each. (What one core has written, another reads slowly: with few channels that
// takes longer than it saves.) A piece tells whether it had the memory that it needed.
template <class Piece>
bool share_out(int64_t count, int channels, int threads, Piece&& piece) {
  constexpr int MANY = 100;
  std::atomic<bool> fine{true};
  if (threads == 1 || count < threads) {
    for (int64_t i = 0; i < count && fine; ++i) fine = piece(i, channels < MANY ? 1 : threads);
  } else {
    parallel(count, 1, threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (!piece(i, 1)) fine = false;
    });
  }
  return fine;
}

// ---- convolutions by 1x1

// [block of results][source][ROWS] of a weight (outputs, inputs); `transposed`: its inputs are the results.
inline void put_in_order(const float* w, int sources, int results, bool transposed, float* u, int threads) {
  const int64_t per_source = transposed ? results : 1, per_result = transposed ? 1 : sources;
  parallel(round_up(results, ROWS) / ROWS, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      for (int64_t s = 0; s < sources; ++s)
        for (int64_t r = 0, k = b * ROWS; r < ROWS; ++r, ++k)
          u[(b * sources + s) * ROWS + r] = k < results ? w[s * per_source + k * per_result] : 0.0f;
  });
}

// y = relu?(the products of weights that are in order and relu?(x * scaling), + bias + residual), at any stride. A block of
// columns is put side by side, whatever the stride, and each of its sums is finished as soon as it is known.
inline Reason forward(const Layer& l, const Maps& maps, const float* x, const float* u, const Fusion& fusion,
                      float* y, int threads) {
  constexpr int MOST_COLUMNS = 64;
  constexpr double CACHED = 4e5;  // bytes of the second-level cache, for the sources of a block
  const Geometry g(l, maps);
  const int sources = l.inputs, results = l.outputs, blocks = round_up(results, ROWS) / ROWS;
  const int vectors = maps.lanes / LANES, of_group = g.out.height * g.out.width * vectors;
  const int64_t columns = int64_t{maps.groups} * of_group, step = int64_t{sources} * ROWS;
  const Multiplier multiplier = find_multiplier(columns, results);
  const int width = multiplier.width;
  const int64_t share = (columns + threads - 1) / threads, cached = int64_t(CACHED / VECTOR_BYTES / sources);
  const int block = round_up(int(std::min<int64_t>({share, cached + 1, MOST_COLUMNS - width})), width);
  const bool scales = fusion.factor != nullptr;
  const auto compute = [&](int64_t first, int threads) {
    float* v = scratch(PACKED, size_t(block) * sources * LANES);  // [panel][source][width], in vectors
    if (v == nullptr) return false;
    const int n = int(std::min<int64_t>(block, columns - first)), used = (n + width - 1) / width;
    int64_t from[MOST_COLUMNS], to[MOST_COLUMNS];
    for (int j = 0; j < n; ++j) {
      const int64_t group = (first + j) / of_group;
      const int within = int((first + j) % of_group), position = within / vectors;
      from[j] = group * g.in_group + within % vectors * LANES + position / g.out.width * g.in.row * l.stride_h +
                position % g.out.width * g.in.column * l.stride_w;
      to[j] = group * g.out_group + int64_t{within} * LANES;
    }
    parallel(sources, 4, threads, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        const Vector factor = fill(scales ? fusion.factor[c] : 1.0f), shift = fill(scales ? fusion.shift[c] : 0.0f);
        const Vector least = fill(scales && fusion.rectify_input ? 0.0f : -INFINITY);
        for (int j = 0; j < used * width; ++j) {
          Vector value{};
          if (j < n) {
            const float* p = x + from[j] + c * g.in.channel;
            value = load(p);
            ask(p + g.in.channel);
            if (scales) value = value * factor + shift, value = least > value ? least : value;
          }
          store(v + ((int64_t{j / width} * sources + c) * width + j % width) * LANES, value);
        }
      }
    });
    parallel(blocks, std::max(1, blocks / 8), threads, [&](int64_t begin, int64_t end) {
      alignas(64) float sums[ROWS * COLUMNS * LANES];
      for (int64_t k = begin, done; k < end; k += done) {
        const bool several = k + multiplier.together < blocks && k + multiplier.together <= end;
        const Multiply multiply = several ? multiplier.several : k == blocks - 1 ? multiplier.last : multiplier.one;
        done = several ? multiplier.together : 1;
        const int last = int(std::min<int64_t>(results, (k + done) * ROWS));
        for (int p = 0; p < used; ++p) {
          multiply(u + k * step, step, v + int64_t{p} * sources * width * LANES, sources, sums, width * LANES);
          const int wide = std::min(width, n - p * width);
          const float* sum = sums;
          for (int result = int(k) * ROWS; result < last; ++result, sum += width * LANES) {
            const Vector bias = fill(fusion.bias == nullptr ? 0.0f : fusion.bias[result]);
            for (int j = 0; j < wide; ++j) {
              const int64_t place = to[p * width + j] + result * g.out.channel;
              Vector value = load(sum + j * LANES) + bias;
              if (fusion.residual != nullptr) value += load(fusion.residual + place);
              store(y + place, fusion.rectify ? positive(value) : value);
            }
          }
        }
      }
    });
    return true;
  };
  FT_NEED(share_out((columns + block - 1) / block, sources + results, threads, [&](int64_t b, int threads) {
    return compute(b * block, threads);
  }), FT_OUT_OF_MEMORY);
  return nullptr;
}

}  // namespace products
}  // namespace FT_NAMESPACE
