// The three directions of a sparse layer, compiled once for each instruction set.
#ifndef FT_NAMESPACE
#error "compile with -DFT_NAMESPACE=name"
#endif

#include "kernels.h"

#include <atomic>

#include "check.h"
#include "geometry.h"
#include "bound.h"
#include "linear.h"
#include "pointwise.h"
#include "pool.h"
#include "winograd.h"

namespace FT_NAMESPACE {

using freetickets::Fusion;
using freetickets::Reason;
using freetickets::parallel;
using freetickets::scratch;

namespace {

alignas(64) const float ZEROS[MOST * LANES] = {};

// ---- one pass over the results

// Where results are written and what is done on the way.
struct Target {
  float* data;
  View view;
  Fusion fusion;
};

void fill_sums(float* sums, int floats, float value) {
  for (int i = 0; i < floats; i += LANES) store(sums + i, fill(value));
}

// Writes the sums of one channel: whole vectors, but for the end of a row that has no lanes.
void finish(const Target& target, int64_t start, const Tile& tile, int columns, int lanes, const float* sums,
            CopyRows copy) {
  if (copy != nullptr)
    return copy(sums, int64_t{tile.columns} * lanes, lanes, target.data + start, target.view.row,
                target.view.column, tile.rows);
  const auto write = [&](int64_t at, const float* from, int floats) {
    for (int i = 0; i + LANES <= floats; i += LANES) {
      Vector sum = load(from + i);
      if (target.fusion.residual != nullptr) sum += load_loose(target.fusion.residual + at + i);
      store_loose(target.data + at + i, target.fusion.rectify ? positive(sum) : sum);
    }
    for (int i = floats / LANES * LANES; i < floats; ++i) {
      const float sum = from[i] + (target.fusion.residual != nullptr ? target.fusion.residual[at + i] : 0.0f);
      target.data[at + i] = target.fusion.rectify && 0.0f > sum ? 0.0f : sum;
    }
  };
  for (int r = 0; r < tile.rows; ++r) {
    const int64_t at = start + target.view.row * r;
    const float* from = sums + int64_t{r} * tile.columns * lanes;
    if (target.view.column == lanes)
      write(at, from, columns * lanes);
    else
      for (int c = 0; c < columns; ++c) write(at + target.view.column * c, from + c * lanes, lanes);
  }
}

// What `finish` needs to know of a tile.
struct Finishing {
  const Target& target;
  int64_t start;
  const Tile& tile;
  int columns, lanes, last_result;
  CopyRows copy;
  const Lines& lines;
};

constexpr int AHEAD = 4;  // results

void finish_result(const void* context, int result, const float* sums) {
  const Finishing& f = *static_cast<const Finishing*>(context);
  const int64_t start = f.start + f.target.view.channel * result;
  // The lines that a later result goes to are asked for already, and those of what is added to it.
  if (result + AHEAD < f.last_result) {
    const int64_t later = start + AHEAD * f.target.view.channel;
    for (int i = 0; i < f.lines.count; ++i) __builtin_prefetch(f.target.data + later + f.lines.at[i], 1, 3);
    if (f.target.fusion.residual != nullptr)
      for (int i = 0; i < f.lines.count; ++i)
        __builtin_prefetch(f.target.fusion.residual + later + f.lines.at[i], 0, 3);
  }
  finish(f.target, start, f.tile, f.columns, f.lanes, sums, f.copy);
}

// A thread takes its tiles in so many pieces: the fewer, the longer another waits for the last one.
constexpr int PIECES = 32;

// Into how many parts of its results each tile is cut, so that no thread waits for another for long. A part packs for
// itself, so they should be few.
int64_t parts_of_tile(int64_t tiles, int results, int threads) {
  const auto waits = [&](int64_t parts) {
    const int64_t most = (tiles * parts + threads - 1) / threads * threads;
    return 20 * most > 21 * tiles * parts;
  };
  int64_t parts = 1;
  while (parts < results / 8 && waits(parts)) ++parts;
  return parts;
}

// result[o] = the sum over the entries (i, tap) of o of value * source[i] moved by tap.
Reason correlate(const float* source, const View& view, int64_t source_group, const Packing& packing,
                 const Order& order, int phase, const Entry* entries, const Target& target,
                 int64_t target_group, const Tile& tile, const Maps& maps, int threads) {
  const int lanes = maps.lanes, vectors = vectors_of(tile.columns, lanes);
  const int64_t sums_size = int64_t{tile.rows} * tile.columns * lanes;
  const int across = (target.view.width + tile.columns - 1) / tile.columns;
  const int down = (target.view.height + tile.rows - 1) / tile.rows;
  const int rest_rows = target.view.height % tile.rows;
  const int blocks = order.blocks();
  const AddEntries whole = entries_kernel(tile.rows, vectors, lanes > 1);
  const AddEntries rest = rest_rows ? entries_kernel(rest_rows, vectors, lanes > 1) : whole;
  const bool plain = target.fusion.residual == nullptr && !target.fusion.rectify && lanes > 1;
  const int64_t tiles = int64_t{maps.groups} * down * across;
  const int64_t splits = parts_of_tile(tiles, order.results, threads);
  std::atomic<bool> failed{false};

  const int64_t piece = std::max<int64_t>(1, tiles * splits / (PIECES * threads));
  parallel(tiles * splits, piece, threads, [&](int64_t begin, int64_t end) {
    const size_t packed_size = size_t(packing.size) * order.block;
    float* packed = scratch(PACKED, packed_size);
    float* sums = scratch(SUMS, size_t(sums_size) * order.results);
    if (packed == nullptr || sums == nullptr) {
      failed = true;
      return;
    }
    Copies copies;
    for (int64_t part = begin; part < end; ++part) {
      const int64_t task = part / splits, split = part % splits;
      const int first_result = int(order.results * split / splits);
      const int last_result = int(order.results * (split + 1) / splits);
      const int64_t group = task / across / down;
      const int row = int(task / across % down) * tile.rows, column = int(task % across) * tile.columns;
      const int columns = std::min(tile.columns, target.view.width - column);
      const Tile mine{std::min(tile.rows, target.view.height - row), tile.columns};
      const AddEntries add = mine.rows == tile.rows ? whole : rest;
      const CopyRows copy = plain ? copy_kernel(columns, lanes / LANES) : nullptr;
      const float* from = source + source_group * group;
      const int64_t start = target_group * group + target.view.row * row + target.view.column * column;
      copies.set(view, packing, mine, row, column, lanes);
      if (copies.bordered) std::memset(packed, 0, packed_size * sizeof(float));
      const Lines lines = copies.lines();
      Lines written;
      written.add(0, target.view.row, target.view.column, mine.rows, columns, lanes);
      const Finishing finishing{target, start, mine, columns, lanes, last_result, copy, written};
      for (int b = 0; b < blocks; ++b) {
        const bool is_last = b == blocks - 1;
        const int first = b * order.block, last = std::min(order.sources, first + order.block);
        const int next = is_last ? last : std::min(order.sources, last + order.block);
        copies.pack(from, view.channel, first, last, packing.size, packed);
        if (target.fusion.factor != nullptr)
          copies.scale(target.fusion, first, last, packing.size, packed);
        Ahead ahead(lines, from, view.channel, last, next, last_result - first_result);
        if (b == 0 && target.fusion.bias != nullptr)
          for (int o = first_result; o < last_result; ++o)
            fill_sums(sums + sums_size * o, int(sums_size), target.fusion.bias[o]);
        const bool from_zero = b == 0 && target.fusion.bias == nullptr;
        float* mysums = sums + sums_size * first_result;
        add({entries, order.row(b, phase), first_result, last_result, reinterpret_cast<const char*>(packed),
             packing.pitch * 4, from_zero ? ZEROS : mysums, from_zero ? 0 : sums_size, mysums, sums_size,
             &ahead, is_last ? finish_result : nullptr, &finishing});
      }
    }
  });
  FT_NEED(!failed, FT_OUT_OF_MEMORY);
  return nullptr;
}

}  // namespace

// ---- the three directions

// Where a tile of the forward pass finds what it needs.
static ForwardPacking pack_forward(const Layer& layer, const Maps& maps, const Geometry& g,
                                   double entries, Tile& tile) {
  ForwardPacking f(layer);
  tile = choose_tile(g.out.height, g.out.width, f.packing.halo_h(), f.packing.halo_w(), maps.lanes, entries);
  f.packing.lay_out(tile, maps.lanes);
  return f;
}

// Refuses entries that were prepared for other maps or for another instruction set. If the one that
// reads farthest is right, none reads beyond what is packed; some more tell whether they are right too.
static Reason check_entries(const Layer& layer, const Maps& maps, const ForwardPacking& f, const Order& order,
                            const Entry* entries, const freetickets::PlanHeader& header) {
  constexpr int SAMPLES = 8;
  const auto fits = [&](int64_t i) { return entries[i].offset == f.offset(layer, maps.lanes, order.taps[i]); };
  bool fine = header.nonzeros == 0 || fits(header.farthest);
  for (int64_t i = 0; i < std::min(header.nonzeros, SAMPLES); ++i)
    fine = fine && fits(i * header.nonzeros / SAMPLES);
  FT_NEED(fine, "the entries were prepared for other maps, or for another instruction set");
  return nullptr;
}

static Reason prepare(const Layer& layer, const Maps& maps, const float* values, const int32_t* plan,
                      int64_t nonzeros, Entry* entries, int threads) {
  const Geometry g(layer, maps);
  const Order order = forward_order(layer, nonzeros, plan);
  Tile tile;
  const ForwardPacking f = pack_forward(layer, maps, g, entries_per_visit(order, nonzeros), tile);
  auto* table = reinterpret_cast<int32_t*>(scratch(TABLE, size_t(order.block) * layer.taps()));
  FT_NEED(table != nullptr, FT_OUT_OF_MEMORY);
  f.tabulate(layer, maps.lanes, order.block, table);
  gather_entries(order, nonzeros, values, table, entries, threads);
  return nullptr;
}

static Reason forward(const Layer& layer, const Maps& maps, const float* x, const Entry* entries,
                      const int32_t* plan, int64_t nonzeros, const Fusion& fusion, float* y, int threads) {
  const Geometry g(layer, maps);
  Tile tile;
  const Order order = forward_order(layer, nonzeros, plan);
  const ForwardPacking f = pack_forward(layer, maps, g, entries_per_visit(order, nonzeros), tile);
  FT_TRY(check_entries(layer, maps, f, order, entries, freetickets::header_of(plan)));
  const Target target{y, g.out, fusion};
  return correlate(x, g.in, g.in_group, f.packing, order, 0, entries, target, g.out_group, tile, maps,
                   threads);
}

static Reason input_gradient(const Layer& layer, const Maps& maps, const float* dy, const float* values,
                             const int32_t* plan, int64_t nonzeros, float* dx, int threads) {
  const Geometry g(layer, maps);
  const Order order = transposed_order(layer, nonzeros, plan);
  auto* table = reinterpret_cast<int32_t*>(scratch(TABLE, size_t(order.block) * layer.taps()));
  auto* entries = reinterpret_cast<Entry*>(scratch(ENTRIES, size_t(nonzeros) * 2));
  FT_NEED(table != nullptr && entries != nullptr, FT_OUT_OF_MEMORY);
  // Positions of the input that agree in their remainder after division by the stride see the same
  // taps. Each such phase is a correlation of its own; a tap belongs to one, so they share a table.
  struct Phase {
    int taps_h, taps_w;
    Packing packing;
    Target target;
  };
  const auto remainder = [](int value, int by) { return value - divide_down(value, by) * by; };
  const auto make_phase = [&](int a, int b) {
    Phase phase;
    const int row = remainder(a - layer.pad_h, layer.stride_h);
    const int column = remainder(b - layer.pad_w, layer.stride_w);
    phase.taps_h = std::max(0, (layer.kernel_h - a + layer.stride_h - 1) / layer.stride_h);
    phase.taps_w = std::max(0, (layer.kernel_w - b + layer.stride_w - 1) / layer.stride_w);
    phase.target.data = dx + g.in.row * row + g.in.column * column;
    phase.target.view = {(g.in.height - row + layer.stride_h - 1) / layer.stride_h,
                         (g.in.width - column + layer.stride_w - 1) / layer.stride_w, g.in.channel,
                         g.in.row * layer.stride_h, g.in.column * layer.stride_w};
    if (phase.taps_h > 0 && phase.taps_w > 0) {
      // Tap a + stride * m reads position j + (row + pad - a) / stride - m of the gradient.
      const int first_h = divide_down(row + layer.pad_h - a, layer.stride_h) - (phase.taps_h - 1);
      const int first_w = divide_down(column + layer.pad_w - b, layer.stride_w) - (phase.taps_w - 1);
      phase.packing.planes = 1;
      phase.packing.plane[0] = {{1, first_h, phase.taps_h - 1}, {1, first_w, phase.taps_w - 1}};
    }
    return phase;
  };
  // Only their tiles are kept: all of the phases would be more than a thread's stack should hold.
  Tile tiles[MOST_PLANES];
  for (int a = 0; a < layer.stride_h; ++a)
    for (int b = 0; b < layer.stride_w; ++b) {
      Phase phase = make_phase(a, b);
      Tile& tile = tiles[a * layer.stride_w + b];
      tile = choose_tile(phase.target.view.height, phase.target.view.width, phase.packing.halo_h(),
                         phase.packing.halo_w(), maps.lanes, entries_per_visit(order, nonzeros));
      phase.packing.lay_out(tile, maps.lanes);
      for (int s = 0; s < order.block; ++s)
        for (int m = 0; m < phase.taps_h; ++m)
          for (int n = 0; n < phase.taps_w; ++n) {
            const int ky = a + layer.stride_h * m, kx = b + layer.stride_w * n;
            table[(s * layer.kernel_h + ky) * layer.kernel_w + kx] = static_cast<int32_t>(
                4 * (phase.packing.size * s + phase.packing.pitch * (phase.taps_h - 1 - m) +
                     int64_t{maps.lanes} * (phase.taps_w - 1 - n)));
          }
    }
  gather_entries(order, nonzeros, values, table, entries, threads);
  // A kernel smaller than the stride leaves phases without taps: their places are zero.
  if (layer.kernel_h < layer.stride_h || layer.kernel_w < layer.stride_w)
    parallel(int64_t{maps.groups} * layer.inputs, 8, threads, [&](int64_t begin, int64_t end) {
      std::memset(dx + g.in.channel * begin, 0, sizeof(float) * size_t(g.in.channel) * size_t(end - begin));
    });
  for (int p = 0; p < layer.phases(); ++p) {
    Phase phase = make_phase(p / layer.stride_w, p % layer.stride_w);
    phase.packing.lay_out(tiles[p], maps.lanes);
    if (phase.taps_h > 0 && phase.taps_w > 0 && phase.target.view.height > 0 && phase.target.view.width > 0)
      FT_TRY(correlate(dy, g.out, g.out_group, phase.packing, order, p, entries, phase.target, g.in_group,
                       tiles[p], maps, threads));
  }
  return nullptr;
}

static Reason weight_gradient(const Layer& layer, const Maps& maps, const float* x, const float* dy,
                              const int32_t* plan, int64_t nonzeros, float* dvalues, int threads) {
  const Geometry g(layer, maps);
  const Order order = forward_order(layer, nonzeros, plan);
  const int lanes = maps.lanes;
  Tile tile;
  const ForwardPacking f = pack_forward(layer, maps, g, entries_per_visit(order, nonzeros), tile);
  auto* table = reinterpret_cast<int32_t*>(scratch(TABLE, size_t(order.block) * layer.taps()));
  auto* offsets = reinterpret_cast<int32_t*>(scratch(ENTRIES, size_t(nonzeros) + 4));
  FT_NEED(table != nullptr && offsets != nullptr, FT_OUT_OF_MEMORY);
  f.tabulate(layer, lanes, order.block, table);
  std::fill(offsets + nonzeros, offsets + nonzeros + 4, 0);
  parallel(nonzeros, 1 << 15, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) offsets[i] = table[order.taps[i]];
  });

  Packing plain;  // of the gradient: no halo
  plain.planes = 1;
  plain.plane[0] = {{1, 0, 0}, {1, 0, 0}};
  plain.lay_out(tile, lanes);

  const int64_t tile_size = int64_t{tile.rows} * tile.columns * lanes;
  const int across = (g.out.width + tile.columns - 1) / tile.columns;
  const int down = (g.out.height + tile.rows - 1) / tile.rows;
  const int rest_rows = g.out.height % tile.rows;
  const AddProducts whole = products_kernel(tile.rows, vectors_of(tile.columns, lanes));
  const AddProducts rest = rest_rows ? products_kernel(rest_rows, vectors_of(tile.columns, lanes)) : whole;

  // The tiles are shared out in chunks that add up products of their own, as long as those are small.
  // The number of chunks, the order of all additions, and so every bit of the result, is the same for
  // any number of threads. Where there are more threads than chunks, blocks of sources are shared out
  // too, then ranges of results; that takes more packing.
  const int64_t tiles = int64_t{maps.groups} * down * across;
  const int chunks = int(std::min<int64_t>(tiles, nonzeros <= 1 << 16 ? 8 : nonzeros <= 1 << 18 ? 4 : 1));
  float* all_products = scratch(PRODUCTS, size_t(nonzeros) * chunks);
  FT_NEED(all_products != nullptr, FT_OUT_OF_MEMORY);
  std::atomic<bool> failed{false};
  const int blocks = order.blocks(), wanted = (threads + chunks - 1) / chunks;
  const int parts = std::min(wanted, blocks), splits = std::min(order.results, (wanted + parts - 1) / parts);
  parallel(int64_t{chunks} * parts * splits, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t chunk = unit / (parts * splits), part = unit % (parts * splits);
      float* products = all_products + nonzeros * chunk;
      const int first_block = int(part / splits * blocks / parts);
      const int last_block = int((part / splits + 1) * blocks / parts);
      const int first = int(part % splits * order.results / splits);
      const int last = int((part % splits + 1) * order.results / splits);
      float* packed = scratch(PACKED, size_t(f.packing.size) * order.block);
      float* gradients = scratch(SUMS, size_t(tile_size) * (last - first));
      if (packed == nullptr || gradients == nullptr) {
        failed = true;
        return;
      }
      Copies of_gradient, of_input;
      for (int b = first_block; b < last_block; ++b) {
        const int32_t* rows = order.row(b, 0);
        std::fill(products + rows[first], products + rows[last], 0.0f);
      }
      for (int64_t task = tiles * chunk / chunks; task < tiles * (chunk + 1) / chunks; ++task) {
        const int64_t group = task / across / down;
        const int row = int(task / across % down) * tile.rows, column = int(task % across) * tile.columns;
        const Tile mine{std::min(tile.rows, g.out.height - row), tile.columns};
        const AddProducts add = mine.rows == tile.rows ? whole : rest;
        of_gradient.set(g.out, plain, mine, row, column, lanes);
        if (of_gradient.bordered) std::memset(gradients, 0, sizeof(float) * tile_size * (last - first));
        of_gradient.pack(dy + g.out_group * group, g.out.channel, first, last, tile_size, gradients);
        of_input.set(g.in, f.packing, mine, row, column, lanes);
        if (of_input.bordered) std::memset(packed, 0, sizeof(float) * f.packing.size * order.block);
        const Lines lines = of_input.lines();
        const float* from = x + g.in_group * group;
        for (int b = first_block; b < last_block; ++b) {
          const int source = b * order.block, end_source = std::min(order.sources, source + order.block);
          const int next = b + 1 == last_block ? end_source : std::min(order.sources, end_source + order.block);
          of_input.pack(from, g.in.channel, source, end_source, f.packing.size, packed);
          Ahead ahead(lines, from, g.in.channel, end_source, next, last - first);
          add({offsets, order.row(b, 0), first, last, reinterpret_cast<const char*>(packed),
               f.packing.pitch * 4, gradients, tile_size, products, &ahead});
        }
      }
    }
  });
  FT_NEED(!failed, FT_OUT_OF_MEMORY);
  parallel(nonzeros, 1 << 15, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float sum = 0;
      for (int chunk = 0; chunk < chunks; ++chunk) sum += all_products[nonzeros * chunk + i];
      dvalues[order.permutation[i]] = sum;
    }
  });
  return nullptr;
}

#define FT_NAME_OF(name) FT_NAME_AGAIN(name)
#define FT_NAME_AGAIN(name) #name

const freetickets::Kernels KERNELS = {
    FT_NAME_OF(FT_NAMESPACE), LANES, LANES < 8 ? 8 : LANES, bound, prepare, forward, input_gradient, weight_gradient,
    linear::forward, linear::backward,
    winograd::weights_size, winograd::transform_weights, winograd::forward, winograd::weight_gradient, normalize, scale, normalize_backward,
    pool, pool_backward,
};

}  // namespace FT_NAMESPACE
