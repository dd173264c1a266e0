// Where the results of a layer lie, and what each of them reads.
#pragma once

#include <algorithm>

#include "layer.h"
#include "packing.h"
#include "parallel.h"
#include "tile.h"

namespace FT_NAMESPACE {

using freetickets::Layer;
using freetickets::MOST_KERNEL;
using freetickets::Maps;
using freetickets::Order;
using namespace freetickets::slots;
using freetickets::output_size;

// The vectors of a tile. Of 16 registers some are for weights; of 32 more could be sums, but halos would fill the cache.
constexpr int MOST_SUMS = LANES == 16 ? 21 : 12;

// The vectors of a tile's row. With one lane a vector holds neighbours in a row of the map instead of
// samples, and a tile's columns are whole vectors.
inline int vectors_of(int columns, int lanes) { return lanes == 1 ? columns / LANES : columns * lanes / LANES; }

// The cheapest tile for a map of height x width positions, if a visit of a result has so many entries.
// An entry costs half a cycle for each vector of sums but not less than an addition takes; a visit
// loads and stores the sums; sums over the edge are lost; halos take cache.
inline Tile choose_tile(int height, int width, int halo_h, int halo_w, int lanes, double entries) {
  const int unit = lanes == 1 ? LANES : 1, vectors = lanes == 1 ? 1 : lanes / LANES;
  const int most = MOST_SUMS / vectors, units = (width + unit - 1) / unit;
  Tile best{1, unit};
  double least = 1e300;
  for (int c = 1; c <= std::min(most, units); ++c)
    for (int r = 1; r * c <= most && r <= height; ++r) {
      const int down = (height + r - 1) / r, across = (units + c - 1) / c, rest = height % r;
      if (r > (height + down - 1) / down) continue;  // as many rows of tiles could be lower
      const auto visit = [&](int rows) {
        return std::max(4.5, rows * c * vectors * 0.5) + 0.5 + (20.0 + 2.0 * rows * c) / entries;
      };
      const double sums = across * (height / r * visit(r) + (rest ? visit(rest) : 0.0));
      const double halo = double(r + halo_h) * (c * unit + halo_w) / (double(r) * c * unit);
      if (sums * (1.0 + 0.03 * halo) < least) least = sums * (1.0 + 0.03 * halo), best = {r, c * unit};
    }
  return best;
}

// The mean number of entries in a visit.
inline double entries_per_visit(const Order& order, int64_t nonzeros) {
  const double visits = double(order.blocks()) * order.phases * order.results;
  return std::max(1.0, double(nonzeros) / visits);
}

struct Geometry {
  View in, out;
  int64_t in_group, out_group;  // from group to group, in floats

  Geometry(const Layer& l, const Maps& m) {
    int h = m.height, w = m.width;
    int oh = output_size(h, l.kernel_h, l.stride_h, l.pad_h);
    int ow = output_size(w, l.kernel_w, l.stride_w, l.pad_w);
    // Where a position reads only itself, the map is one long row: its tiles have no ragged edges.
    if (l.taps() == 1 && l.phases() == 1 && l.pad_h == 0 && l.pad_w == 0)
      w *= h, ow *= oh, h = oh = 1;
    in = {h, w, int64_t{h} * w * m.lanes, int64_t{w} * m.lanes, m.lanes};
    out = {oh, ow, int64_t{oh} * ow * m.lanes, int64_t{ow} * m.lanes, m.lanes};
    in_group = in.channel * l.inputs;
    out_group = out.channel * l.outputs;
  }
};

// The planes that the taps of a forward pass read, and where each tap finds its own.
struct ForwardPacking {
  Packing packing;
  Reach rows[MOST_KERNEL], columns[MOST_KERNEL];
  int row_plane[MOST_KERNEL], column_plane[MOST_KERNEL];  // the plane of a kernel's row, column
  int row_place[MOST_KERNEL], column_place[MOST_KERNEL];  // and the place in it
  int column_planes;

  explicit ForwardPacking(const Layer& l) {
    const int row_planes = group(l.kernel_h, l.stride_h, l.pad_h, rows, row_plane, row_place);
    column_planes = group(l.kernel_w, l.stride_w, l.pad_w, columns, column_plane, column_place);
    for (int r = 0; r < row_planes; ++r)
      for (int c = 0; c < column_planes; ++c) packing.plane[packing.planes++] = {rows[r], columns[c]};
  }

  static int group(int kernel, int stride, int pad, Reach* reaches, int* plane, int* place) {
    int planes = 0;
    for (int remainder = 0; remainder < stride; ++remainder) {
      int least = 0, most = -1;
      for (int k = 0; k < kernel; ++k) {
        const int q = divide_down(k - pad, stride);
        if (k - pad - q * stride != remainder) continue;
        if (most < least) least = q;
        most = q;
        plane[k] = planes;
        place[k] = q - least;
      }
      if (most >= least) reaches[planes++] = {stride, stride * least + remainder, most - least};
    }
    return planes;
  }

  // Where a source of a block is read by a tap, in bytes.
  int32_t offset(int lanes, int s, int ky, int kx) const {
    return static_cast<int32_t>(
        4 * (packing.size * s + packing.start[row_plane[ky] * column_planes + column_plane[kx]] +
             packing.pitch * row_place[ky] + int64_t{lanes} * column_place[kx]));
  }

  // The same for a place in the table: see `Order::taps`.
  int32_t offset(const Layer& l, int lanes, int place) const {
    const int tap = place % l.taps();
    return offset(lanes, place / l.taps(), tap / l.kernel_w, tap % l.kernel_w);
  }

  void tabulate(const Layer& l, int lanes, int sources, int32_t* table) const {
    for (int s = 0; s < sources; ++s)
      for (int ky = 0; ky < l.kernel_h; ++ky)
        for (int kx = 0; kx < l.kernel_w; ++kx) *table++ = offset(lanes, s, ky, kx);
  }
};

// The entries of an order with today's values.
inline void gather_entries(const Order& order, int64_t nonzeros, const float* values, const int32_t* table,
                    Entry* entries, int threads) {
  freetickets::parallel(nonzeros, 1 << 15, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      entries[i] = {table[order.taps[i]], values[order.permutation[i]]};
  });
}

}  // namespace FT_NAMESPACE
