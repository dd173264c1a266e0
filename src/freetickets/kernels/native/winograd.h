// Convolutions by 3x3 with stride 1 whose weights are nearly dense: Winograd's F(4x4, 3x3).
//
// A tile of 4x4 results needs 36 products for each pair of channels instead of 144. What is read is
// transformed (6x6 numbers to 6x6 "frequencies"), each frequency is a matrix product of its own, and what
// comes out is transformed back (6x6 to 4x4). A vector holds one position of several samples, so the
// transforms are additions of whole vectors.
//
// The points are 0, ±2/3, ±3/2 and infinity: with the usual ±1 and ±2, rounding costs four times as much.
#pragma once

#include "products.h"

namespace FT_NAMESPACE {
namespace winograd {

using namespace products;

constexpr int SIDE = 6, RESULT = 4, FREQUENCIES = SIDE * SIDE;
constexpr float A1 = 2.0f / 3, B1 = 3.0f / 2;  // the points, whose product is 1
constexpr float A2 = A1 * A1, B2 = B1 * B1, A3 = A2 * A1, B3 = B2 * B1;
// What the transforms of weights divide by.
constexpr float OF_A = 1 / (2 * A2 * (A2 - B2)), OF_B = 1 / (2 * B2 * (B2 - A2));

// ---- the transforms, in one dimension: numbers that lie `s` apart to numbers that lie `t` apart

// Six numbers of the input to six frequencies.
template <class T>
FT_INLINE void of_input(const T* d, int s, T* o, int t) {
  const T a = d[4 * s] - B2 * d[2 * s], b = A1 * d[3 * s] - B1 * d[s];
  const T c = d[4 * s] - A2 * d[2 * s], e = B1 * d[3 * s] - A1 * d[s];
  o[0] = d[0] - (A2 + B2) * d[2 * s] + d[4 * s];
  o[t] = a + b, o[2 * t] = a - b, o[3 * t] = c + e, o[4 * t] = c - e;
  o[5 * t] = d[s] - (A2 + B2) * d[3 * s] + d[5 * s];
}

// Six frequencies to four numbers of the result.
template <class T>
FT_INLINE void to_result(const T* m, int s, T* o, int t) {
  const T p = m[s] + m[2 * s], q = m[s] - m[2 * s], r = m[3 * s] + m[4 * s], u = m[3 * s] - m[4 * s];
  o[0] = m[0] + p + r, o[t] = A1 * q + B1 * u;
  o[2 * t] = A2 * p + B2 * r, o[3 * t] = A3 * q + B3 * u + m[5 * s];
}

// Three weights to six frequencies.
template <class T>
FT_INLINE void of_weights(const T* w, int s, T* o, int t) {
  const T a = OF_A * (w[0] + A2 * w[2 * s]), b = OF_A * (A1 * w[s]);
  const T c = OF_B * (w[0] + B2 * w[2 * s]), e = OF_B * (B1 * w[s]);
  o[0] = w[0], o[t] = a + b, o[2 * t] = a - b, o[3 * t] = c + e, o[4 * t] = c - e, o[5 * t] = w[2 * s];
}

// Four numbers of the result's gradient to six frequencies, where they stand for the weights.
template <class T>
FT_INLINE void of_gradient(const T* g, int s, T* o, int t) {
  const T a = OF_A * (g[0] + A2 * g[2 * s]), b = OF_A * (A1 * g[s] + A3 * g[3 * s]);
  const T c = OF_B * (g[0] + B2 * g[2 * s]), e = OF_B * (B1 * g[s] + B3 * g[3 * s]);
  o[0] = g[0], o[t] = a + b, o[2 * t] = a - b, o[3 * t] = c + e, o[4 * t] = c - e, o[5 * t] = g[3 * s];
}

// Six frequencies to the gradients of three weights.
template <class T>
FT_INLINE void to_weights(const T* m, int s, T* o, int t) {
  const T p = m[s] + m[2 * s], q = m[s] - m[2 * s], r = m[3 * s] + m[4 * s], u = m[3 * s] - m[4 * s];
  o[0] = m[0] + p + r, o[t] = A1 * q + B1 * u, o[2 * t] = A2 * p + B2 * r + m[5 * s];
}

// ---- tiles

// The maps of a layer in tiles. A column is one vector of samples of one tile of one group.
struct Tiling {
  int height, width;            // of what is read
  int out_height, out_width;    // of what is written
  int pad_h, pad_w, across, tiles, vectors;
  int64_t in_channel, out_channel, columns;

  Tiling(const Layer& l, const Maps& m)
      : height(m.height), width(m.width), out_height(m.height + 2 * l.pad_h - 2),
        out_width(m.width + 2 * l.pad_w - 2), pad_h(l.pad_h), pad_w(l.pad_w),
        across((out_width + RESULT - 1) / RESULT), tiles((out_height + RESULT - 1) / RESULT * across),
        vectors(m.lanes / LANES), in_channel(int64_t{height} * width * m.lanes),
        out_channel(int64_t{out_height} * out_width * m.lanes), columns(int64_t{m.groups} * tiles * vectors) {}

  struct Column {
    int64_t group;
    int row, column, vector;  // the tile's first position in the result
  };
  Column at(int64_t column) const {
    const int64_t tile = column / vectors;
    const int within = int(tile % tiles);
    return {tile / tiles, within / across * RESULT, within % across * RESULT, int(column % vectors)};
  }
  int lanes() const { return vectors * LANES; }
};

// What lies beyond the map.
alignas(64) inline const float NOTHING[LANES] = {};

// The 6x6 positions that a tile reads, transformed; those beyond the map are zero. `put` gets a frequency and its
// vector. A row of the loops below is six vectors, which stay in registers; what stands between the two transforms
// does not fit there.
template <class Put>
FT_INLINE void transform_tile(const Tiling& t, const Tiling::Column& at, const float* channel, const Fusion* fusion,
                              int c, Put&& put) {
  const int row = at.row - t.pad_h, column = at.column - t.pad_w, lanes = t.lanes();
  const float* from = channel + (int64_t{row} * t.width + column) * lanes + at.vector * LANES;
  const int64_t down = int64_t{t.width} * lanes;
  const bool scales = fusion != nullptr && fusion->factor != nullptr;
  Vector e[FREQUENCIES];
  if (row >= 0 && column >= 0 && row + SIDE <= t.height && column + SIDE <= t.width && !scales) {
    for (int j = 0; j < SIDE; ++j) {
      Vector d[SIDE];
      for (int i = 0; i < SIDE; ++i) {
        d[i] = load(from + i * down + j * lanes);
        ask(from + i * down + j * lanes + t.in_channel);
      }
      of_input(d, 1, e + j, SIDE);
    }
  } else {
    const Vector factor = fill(scales ? fusion->factor[c] : 1.0f), shift = fill(scales ? fusion->shift[c] : 0.0f);
    const Vector least = fill(scales && fusion->rectify_input ? 0.0f : -INFINITY);
    for (int j = 0; j < SIDE; ++j) {
      Vector d[SIDE];
      const bool within = column + j >= 0 && column + j < t.width;
      for (int i = 0; i < SIDE; ++i) {
        // An address is chosen, not a way: the processor would guess wrongly at every edge.
        const bool inside = within && row + i >= 0 && row + i < t.height;
        d[i] = load(inside ? from + i * down + j * lanes : NOTHING);
        ask(from + i * down + j * lanes + t.in_channel);
        if (scales) {
          const Vector v = d[i] * factor + shift;
          d[i] = inside ? (least > v ? least : v) : Vector{};
        }
      }
      of_input(d, 1, e + j, SIDE);
    }
  }
  for (int i = 0; i < SIDE; ++i) {
    Vector o[SIDE];
    of_input(e + i * SIDE, 1, o, 1);
    for (int j = 0; j < SIDE; ++j) put(i * SIDE + j, o[j]);
  }
}

// Vectors that are written one frequency after the other must not be a power of two apart: all would fall into one
// set of the first-level cache. In floats.
inline int64_t apart(int64_t floats) { return (floats / 1024 + (floats % 1024 > 64)) * 1024 + 64; }

constexpr int MOST_COLUMNS = 64;

// As many columns at a time as the second-level cache holds of what is made of them, in multiples of `unit`; at least
// `least`. On Zen 4, one unit at a time instead of ten made 32 channels 1.4 times as fast.
inline int block_columns(int channels, int64_t columns, int unit, int least) {
  constexpr double CACHED = 6e5;
  const int wanted = std::max(int(CACHED / (FREQUENCIES * VECTOR_BYTES) / channels), least);
  const int64_t most = std::min<int64_t>({wanted, MOST_COLUMNS - unit, columns + unit - 1});
  return std::max(1, int(most) / unit) * unit;
}

// ---- forward, and so the input gradient

inline int64_t weights_size(const Layer& l, bool transposed) {
  const int sources = transposed ? l.outputs : l.inputs, results = transposed ? l.inputs : l.outputs;
  return HEADER + int64_t{l.taps() == 1 ? 1 : FREQUENCIES} * round_up(results, ROWS) * sources;
}

// Transforms a dense weight (outputs, inputs, 3, 3); one of 1x1 is only put in order. For the input gradient, inputs and
// outputs change places, and the kernel is turned round.
inline void transform_weights(const Layer& l, const float* w, bool transposed, float* u, int threads) {
  const int sources = transposed ? l.outputs : l.inputs, results = transposed ? l.inputs : l.outputs;
  const int blocks = round_up(results, ROWS) / ROWS;
  const int32_t header[HEADER] = {MAGIC, sources, results, l.taps()};
  std::memcpy(u, header, sizeof header);
  u += HEADER;
  if (l.taps() == 1) return put_in_order(w, sources, results, transposed, u, threads);
  parallel(blocks, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      for (int s = 0; s < sources; ++s) {
        typedef float Row __attribute__((vector_size(32), aligned(32)));
        Row g[9] = {}, e[18], o[FREQUENCIES];
        for (int r = 0; r < ROWS && b * ROWS + r < results; ++r) {
          const int64_t result = b * ROWS + r;
          const float* from = w + (transposed ? int64_t{s} * l.inputs + result : result * l.inputs + s) * 9;
          for (int k = 0; k < 9; ++k) g[k][r] = from[transposed ? 8 - k : k];
        }
        for (int j = 0; j < 3; ++j) of_weights(g + j, 3, e + j, 3);
        for (int i = 0; i < SIDE; ++i) of_weights(e + i * 3, 1, o + i * SIDE, 1);
        for (int f = 0; f < FREQUENCIES; ++f)
          for (int r = 0; r < ROWS; ++r) u[((f * int64_t{blocks} + b) * sources + s) * ROWS + r] = o[f][r];
      }
  });
}

inline Reason forward(const Layer& l, const Maps& maps, const float* x, const float* u, const Fusion& fusion,
                      float* y, int threads) {
  FT_TRY(check_weights(l, u));
  u += HEADER;
  if (l.taps() == 1) return products::forward(l, maps, x, u, fusion, y, threads);
  const Tiling t(l, maps);
  const int sources = l.inputs, results = l.outputs, blocks = round_up(results, ROWS) / ROWS;
  const Multiplier multiplier = find_multiplier(t.columns, results);
  const int width = multiplier.width;
  // No bit of the result depends on where a block ends, so each thread may have one.
  const int share = round_up(int(std::min<int64_t>(1 << 20, (t.columns + threads - 1) / threads)), width);
  const int block = std::min(share, block_columns(sources + results, t.columns, width, width)), panels = block / width;
  const int64_t row = int64_t{block} * LANES, step = int64_t{sources} * ROWS;
  const int64_t plane = apart(row * blocks * ROWS), v_plane = apart(int64_t{panels} * sources * width * LANES);
  const auto compute = [&](int64_t first, int threads) {
    // [frequency][panel][source][width] and [frequency][result][block], in vectors.
    float* v = scratch(PACKED, size_t(FREQUENCIES) * v_plane);
    float* m = scratch(SUMS, size_t(FREQUENCIES) * plane);
    if (v == nullptr || m == nullptr) return false;
    const int n = int(std::min<int64_t>(block, t.columns - first)), used = (n + width - 1) / width;
    Tiling::Column at[MOST_COLUMNS];
    for (int j = 0; j < n; ++j) at[j] = t.at(first + j);
    parallel(sources, 4, threads, [&](int64_t begin, int64_t end) {
      for (int c = int(begin); c < int(end); ++c)
        for (int j = 0; j < used * width; ++j) {
          float* to = v + ((int64_t{j / width} * sources + c) * width + j % width) * LANES;
          if (j < n)
            transform_tile(t, at[j], x + (at[j].group * sources + c) * t.in_channel, &fusion, c,
                           [&](int f, Vector o) { store(to + f * v_plane, o); });
          else
            for (int f = 0; f < FREQUENCIES; ++f) store(to + f * v_plane, Vector{});
        }
    });
    parallel(int64_t{FREQUENCIES} * blocks, std::max(1, blocks / 4), threads, [&](int64_t begin, int64_t end) {
      for (int p = 0; p < used; ++p)
        for (int64_t i = begin, done; i < end; i += done) {
          const int64_t f = i / blocks, k = i % blocks;
          const bool several = k + multiplier.together < blocks && i + multiplier.together <= end;
          done = several ? multiplier.together : 1;
          (several ? multiplier.several : k == blocks - 1 ? multiplier.last : multiplier.one)(
              u + i * step, step, v + f * v_plane + int64_t{p} * sources * width * LANES, sources,
              m + f * plane + k * ROWS * row + p * width * LANES, row);
        }
    });
    parallel(results, 4, threads, [&](int64_t begin, int64_t end) {
      for (int k = int(begin); k < int(end); ++k) {
        const Vector bias = fill(fusion.bias == nullptr ? 0.0f : fusion.bias[k]);
        for (int j = 0; j < n; ++j) {
          Vector e[RESULT * SIDE];
          for (int q = 0; q < SIDE; ++q) {
            Vector d[SIDE];
            for (int i = 0; i < SIDE; ++i) d[i] = load(m + (i * SIDE + q) * plane + k * row + j * LANES);
            to_result(d, 1, e + q, SIDE);
          }
          const int64_t start = (at[j].group * results + k) * t.out_channel +
                                (int64_t{at[j].row} * t.out_width + at[j].column) * t.lanes() + at[j].vector * LANES;
          const int rows = std::min(RESULT, t.out_height - at[j].row);
          const int columns = std::min(RESULT, t.out_width - at[j].column);
          const auto write = [&](const Vector* o, int64_t place, int columns) __attribute__((always_inline)) {
            for (int q = 0; q < columns; ++q, place += t.lanes()) {
              Vector sum = o[q] + bias;
              if (fusion.residual != nullptr) sum += load(fusion.residual + place);
              store(y + place, fusion.rectify ? positive(sum) : sum);
              __builtin_prefetch(y + place + t.out_channel, 1, 3);
            }
          };
          for (int i = 0; i < rows; ++i) {
            Vector o[RESULT];
            to_result(e + i * SIDE, 1, o, 1);
            const int64_t place = start + int64_t{i} * t.out_width * t.lanes();
            if (columns == RESULT)
              write(o, place, RESULT);
            else
              write(o, place, columns);
          }
        }
      }
    });
    return true;
  };
  FT_NEED(share_out((t.columns + block - 1) / block, sources + results, threads, [&](int64_t b, int threads) {
    return compute(b * block, threads);
  }), FT_OUT_OF_MEMORY);
  return nullptr;
}

// ---- weight gradient

// Here channels lie in the lanes: the sum over samples and tiles is the inner loop of a matrix product.
#if FT_LANES == 16
constexpr int OUTPUTS = 8;
#else
constexpr int OUTPUTS = 4;
#endif
constexpr int INPUT_VECTORS = 3;

template <int D, size_t... I>
FT_INLINE void exchange(Vector& a, Vector& b, std::index_sequence<I...>) {
  const Vector x = a, y = b;
  a = __builtin_shufflevector(x, y, ((I & D) ? int(LANES + I - D) : int(I))...);
  b = __builtin_shufflevector(x, y, ((I & D) ? int(LANES + I) : int(I + D))...);
}

template <int D>
FT_INLINE void transpose(Vector* v) {
  for (int i = 0; i < LANES; ++i)
    if ((i & D) == 0) exchange<D>(v[i], v[i + D], std::make_index_sequence<LANES>{});
  if constexpr (D > 1) transpose<D / 2>(v);
}

// Transforms LANES channels of a column, and lays them out as [frequency][block of channels][sample].
template <class Read>
FT_INLINE void lay_out(int channels, int first, int blocks, int64_t samples, int64_t sample, float* to, Read&& read) {
  Vector all[LANES][FREQUENCIES];
  for (int c = 0; c < LANES; ++c) {
    if (first + c < channels)
      read(first + c, all[c]);
    else
      for (int f = 0; f < FREQUENCIES; ++f) all[c][f] = Vector{};
  }
  for (int f = 0; f < FREQUENCIES; ++f) {
    Vector v[LANES];
    for (int c = 0; c < LANES; ++c) v[c] = all[c][f];
    transpose<LANES / 2>(v);
    float* at = to + ((int64_t{f} * blocks + first / LANES) * samples + sample) * LANES;
    for (int i = 0; i < LANES; ++i) store(at + i * LANES, v[i]);
  }
}

// sums[output][input] += the sum over samples of y[sample][output] * x[sample][input].
template <int INPUTS, size_t... I>
FT_INLINE void add_products(const float* y, const float* x, int64_t panel, int64_t samples, float* sums, int64_t row,
                            std::index_sequence<I...>) {
  Vector acc[OUTPUTS * INPUTS];
  ((acc[I] = Vector{}), ...);
  (__builtin_prefetch(sums + int64_t(I / INPUTS) * row + I % INPUTS * LANES, 1, 3), ...);
  for (int64_t s = 0; s < samples; ++s, y += LANES, x += LANES)
    ((acc[I] += fill(y[I / INPUTS]) * load(x + int64_t(I % INPUTS) * panel)), ...);
  ((store(sums + int64_t(I / INPUTS) * row + I % INPUTS * LANES,
          load(sums + int64_t(I / INPUTS) * row + I % INPUTS * LANES) + acc[I])),
   ...);
}

template <int INPUTS>
inline void add_products(const float* y, const float* x, int64_t panel, int64_t samples, float* sums, int64_t row) {
  add_products<INPUTS>(y, x, panel, samples, sums, row, std::make_index_sequence<OUTPUTS * INPUTS>{});
}

// Adds the products of n columns, from the first one on, to the sums [frequency][output][input].
inline void add_block(const Layer& l, const Tiling& t, const float* x, const float* dy, int64_t first, int n,
                      int64_t samples, float* xs, float* ys, float* sums, int threads) {
  const int in_blocks = round_up(l.inputs, LANES) / LANES, out_blocks = round_up(l.outputs, LANES) / LANES;
  const int64_t row = int64_t{in_blocks} * LANES, plane = row * out_blocks * LANES;
  parallel(in_blocks + out_blocks, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b)
      for (int j = 0; j < n; ++j) {
        const Tiling::Column at = t.at(first + j);
        if (b < in_blocks)
          lay_out(l.inputs, int(b) * LANES, in_blocks, samples, int64_t{j} * LANES, xs, [&](int c, Vector* o) {
            transform_tile(t, at, x + (at.group * l.inputs + c) * t.in_channel, nullptr, c,
                           [&](int f, Vector v) { o[f] = v; });
          });
        else
          lay_out(l.outputs, int(b - in_blocks) * LANES, out_blocks, samples, int64_t{j} * LANES, ys,
                  [&](int k, Vector* o) {
                    Vector e[SIDE * RESULT];
                    const float* from = dy + (at.group * l.outputs + k) * t.out_channel + at.vector * LANES +
                                        (int64_t{at.row} * t.out_width + at.column) * t.lanes();
                    for (int q = 0; q < RESULT; ++q) {
                      Vector d[RESULT];
                      for (int i = 0; i < RESULT; ++i) {
                        const bool inside = at.row + i < t.out_height && at.column + q < t.out_width;
                        const float* place = from + (int64_t{i} * t.out_width + q) * t.lanes();
                        d[i] = load(inside ? place : NOTHING);
                        ask(place + t.out_channel);
                      }
                      of_gradient(d, 1, e + q, RESULT);
                    }
                    for (int i = 0; i < SIDE; ++i) of_gradient(e + i * RESULT, 1, o + i * SIDE, 1);
                  });
      }
  });
  const int parts = out_blocks * LANES / OUTPUTS;
  const int64_t used = int64_t{n} * LANES, panel = samples * LANES;
  parallel(int64_t{FREQUENCIES} * parts, std::max(1, parts / 4), threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t f = i / parts, k = i % parts * OUTPUTS;
      const float* from_y = ys + (f * out_blocks + k / LANES) * panel + k % LANES;
      for (int c = 0; c < in_blocks;) {
        const float* from_x = xs + (f * in_blocks + c) * panel;
        float* to = sums + f * plane + k * row + int64_t{c} * LANES;
        if (in_blocks - c >= INPUT_VECTORS)
          add_products<INPUT_VECTORS>(from_y, from_x, panel, used, to, row), c += INPUT_VECTORS;
        else if (in_blocks - c == 2)
          add_products<2>(from_y, from_x, panel, used, to, row), c += 2;
        else
          add_products<1>(from_y, from_x, panel, used, to, row), c += 1;
      }
    }
  });
}

// The gradient of the whole weight (outputs, inputs, 3, 3).
inline Reason weight_gradient(const Layer& l, const Maps& maps, const float* x, const float* dy, float* dw,
                              int threads) {
  const Tiling t(l, maps);
  const int in_blocks = round_up(l.inputs, LANES) / LANES, out_blocks = round_up(l.outputs, LANES) / LANES;
  const int64_t row = int64_t{in_blocks} * LANES, plane = row * out_blocks * LANES, size = FREQUENCIES * plane;
  // Sums that lie farther away than the second-level cache must serve many columns.
  constexpr int64_t NEAR = 3 << 18;
  const int least = size < NEAR ? 4 : 1024 / VECTOR_BYTES;
  const int block = block_columns((in_blocks + out_blocks) * LANES, t.columns, 4, least);
  const int64_t samples = int64_t{block} * LANES;
  // The columns are shared out in chunks that add up sums of their own, as long as those are small. Their
  // number, and so every bit of the result, is the same for any number of threads.
  const int64_t blocks = (t.columns + block - 1) / block;
  const int64_t most = size <= 1 << 20 ? 8 : size <= 1 << 22 ? 4 : size <= 1 << 23 ? 2 : 1;
  int64_t chunks = 1;
  while (2 * chunks <= most && 4 * chunks <= blocks) chunks *= 2;
  float* all_sums = scratch(PRODUCTS, size_t(size) * size_t(chunks));
  FT_NEED(all_sums != nullptr, FT_OUT_OF_MEMORY);
  const auto compute = [&](int64_t chunk, int threads) {
    float* sums = all_sums + chunk * size;
    float* xs = scratch(PACKED, size_t(FREQUENCIES) * samples * in_blocks * LANES);
    float* ys = scratch(SUMS, size_t(FREQUENCIES) * samples * out_blocks * LANES);
    if (xs == nullptr || ys == nullptr) return false;
    parallel(FREQUENCIES, 1, threads, [&](int64_t begin, int64_t end) {
      std::memset(sums + begin * plane, 0, sizeof(float) * size_t(end - begin) * plane);
    });
    for (int64_t b = blocks * chunk / chunks; b < blocks * (chunk + 1) / chunks; ++b)
      add_block(l, t, x, dy, b * block, int(std::min<int64_t>(block, t.columns - b * block)), samples, xs, ys, sums,
                threads);
    return true;
  };
  FT_NEED(share_out(chunks, l.inputs + l.outputs, threads, compute), FT_OUT_OF_MEMORY);
  parallel(l.outputs, 4, threads, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k)
      for (int c = 0; c < l.inputs; c += LANES) {
        Vector d[FREQUENCIES], e[3 * SIDE], o[9];
        for (int f = 0; f < FREQUENCIES; ++f) {
          const float* from = all_sums + f * plane + k * row + c;
          d[f] = load(from);
          for (int64_t chunk = 1; chunk < chunks; ++chunk) d[f] += load(from + chunk * size);
        }
        for (int j = 0; j < SIDE; ++j) to_weights(d + j, SIDE, e + j, SIDE);
        for (int i = 0; i < 3; ++i) to_weights(e + i * SIDE, 1, o + i * 3, 1);
        for (int i = 0; i < LANES && c + i < l.inputs; ++i)
          for (int q = 0; q < 9; ++q) dw[(k * l.inputs + c + i) * 9 + q] = o[q][i];
      }
  });
  return nullptr;
}

}  // namespace winograd
}  // namespace FT_NAMESPACE
