// Copies what a tile of results needs of a block of source channels into one dense piece of memory.
//
// Without this, the channels of a map whose size is a power of two would all fall into the same few
// sets of the first-level cache.
#pragma once

#include <algorithm>
#include <cmath>

#include "layer.h"
#include "vector.h"

namespace FT_NAMESPACE {

using freetickets::divide_down;

// A channel of one group in memory: distances in floats.
struct View {
  int height, width;
  int64_t channel, row, column;
};

// A tile of the result: rows x columns positions.
struct Tile {
  int rows, columns;
};

// The positions of the source that some taps read, in one dimension: position j of the result reads
// `first + step * (j + k)` for k = 0..span.
struct Reach {
  int step, first, span;
};

// The taps that agree in their remainders after division by the stride read one plane of positions.
struct Plane {
  Reach rows, columns;
};

constexpr int MOST_PLANES = freetickets::MOST_STRIDE * freetickets::MOST_STRIDE;

// A packed source: its planes, with halos, one behind the other. They share the distance between
// rows: the inner loop knows only one.
struct Packing {
  int planes = 0;
  Plane plane[MOST_PLANES];
  int64_t start[MOST_PLANES];  // of a plane, in floats
  int64_t pitch = 0;           // from row to row, in floats
  int64_t size = 0;            // of one source, in floats

  int halo_h() const {
    int most = 0;
    for (int p = 0; p < planes; ++p) most = std::max(most, plane[p].rows.span);
    return most;
  }
  int halo_w() const {
    int most = 0;
    for (int p = 0; p < planes; ++p) most = std::max(most, plane[p].columns.span);
    return most;
  }
  void lay_out(const Tile& tile, int lanes) {
    pitch = int64_t{tile.columns + halo_w()} * lanes;
    size = 0;
    for (int p = 0; p < planes; ++p) {
      start[p] = size;
      size += pitch * (tile.rows + plane[p].rows.span);
    }
  }
};

// Copies `rows` rows of N positions of V vectors each; all distances are in floats.
using CopyRows = void (*)(const float* from, int64_t from_row, int64_t from_column, float* to,
                          int64_t to_row, int64_t to_column, int rows);

template <int V, size_t... I>
FT_INLINE void copy_row(const float* from, int64_t from_column, float* to, int64_t to_column,
                        std::index_sequence<I...>) {
  ((store(to + to_column * (I / V) + I % V * LANES, load(from + from_column * (I / V) + I % V * LANES))),
   ...);
}

template <int V, size_t N>
void copy_rows(const float* from, int64_t from_row, int64_t from_column, float* to, int64_t to_row,
               int64_t to_column, int rows) {
  for (int r = 0; r < rows; ++r, from += from_row, to += to_row)
    copy_row<V>(from, from_column, to, to_column, std::make_index_sequence<V * N>{});
}

template <int V, size_t... N>
CopyRows find_copy(int columns, std::index_sequence<N...>) {
  static constexpr CopyRows all[] = {copy_rows<V, N>...};
  return all[columns];
}

// A row's loop is unrolled: rows are short, and the end of a loop would be guessed wrongly.
inline CopyRows copy_kernel(int columns, int vectors) {
  const auto sizes = std::make_index_sequence<24>{};
  if (columns >= 24) return nullptr;
  return vectors == 1 ? find_copy<1>(columns, sizes) : vectors == 2 ? find_copy<2>(columns, sizes) : nullptr;
}

// The part of a plane that lies within the map.
struct Inside {
  int64_t source, source_row, source_column;  // from the start of the source's channel
  int64_t target, target_row;                 // from the start of the packed source
  int rows, columns;
  CopyRows copy;
};

// The cache lines of a channel that a tile touches, to ask the memory for them early.
struct Lines {
  static constexpr int MOST = 256;
  int32_t at[MOST];
  int count = 0;

  void add(int64_t start, int64_t row, int64_t column, int rows, int columns, int lanes) {
    const int64_t step = std::max<int64_t>(column, 16);  // a line has 16 floats
    for (int r = 0; r < rows; ++r)
      for (int64_t c = 0; c < column * (columns - 1) + lanes && count < MOST; c += step)
        at[count++] = static_cast<int32_t>(start + row * r + c);
  }
};

// What packing a source channel takes; the same for all channels, so found once for each tile.
struct Copies {
  Inside parts[MOST_PLANES];
  int count;
  int lanes;
  bool bordered;  // whether zeros stand around the parts

  void set(const View& view, const Packing& packing, const Tile& tile, int row, int column, int lanes_) {
    lanes = lanes_;
    bordered = false;
    count = 0;
    for (int p = 0; p < packing.planes; ++p) {
      const Plane& plane = packing.plane[p];
      // Of the positions first + step * i, i < wanted, from..to lie within 0..size.
      const auto within = [](int first, int step, int wanted, int size, int& from, int& to) {
        from = std::min(wanted, std::max(0, -divide_down(first, step)));
        to = std::max(from, std::min(wanted, divide_down(size - 1 - first, step) + 1));
        return to - from < wanted;
      };
      const int y = plane.rows.step * row + plane.rows.first;
      const int x = plane.columns.step * column + plane.columns.first;
      int top, bottom, left, right;
      bordered |= within(y, plane.rows.step, tile.rows + plane.rows.span, view.height, top, bottom);
      bordered |=
          within(x, plane.columns.step, tile.columns + plane.columns.span, view.width, left, right);
      if (top == bottom || left == right) continue;
      parts[count++] = {view.row * (y + int64_t{plane.rows.step} * top) +
                            view.column * (x + int64_t{plane.columns.step} * left),
                        view.row * plane.rows.step,
                        view.column * plane.columns.step,
                        packing.start[p] + packing.pitch * top + int64_t{left} * lanes,
                        packing.pitch,
                        bottom - top,
                        right - left,
                        lanes == 1 ? nullptr : copy_kernel(right - left, lanes / LANES)};
    }
  }

  // Packs the sources first..last, one behind the other, around the zeros that stand already.
  void pack(const float* source, int64_t channel, int first, int last, int64_t size, float* packed) const {
    source += channel * first;
    for (; first < last; ++first, source += channel, packed += size)
      for (const Inside* p = parts; p != parts + count; ++p)
        if (p->copy != nullptr)
          p->copy(source + p->source, p->source_row, p->source_column, packed + p->target, p->target_row,
                  lanes, p->rows);
        else
          copy_any(*p, source + p->source, packed + p->target);
  }

  // Scales sources that are packed; the zeros around them stay.
  void scale(const freetickets::Fusion& fusion, int first, int last, int64_t size, float* packed) const {
    for (; first < last; ++first, packed += size) {
      const float factor = fusion.factor[first], shift = fusion.shift[first];
      const Vector a = fill(factor), b = fill(shift);
      const float least = fusion.rectify_input ? 0.0f : -INFINITY;
      const Vector bound = fill(least);
      for (const Inside* p = parts; p != parts + count; ++p)
        for (int r = 0; r < p->rows; ++r) {
          float* row = packed + p->target + r * p->target_row;
          const int floats = p->columns * lanes;
          int i = 0;
          for (; i + LANES <= floats; i += LANES) {
            const Vector scaled = load_loose(row + i) * a + b;
            store_loose(row + i, bound > scaled ? bound : scaled);
          }
          for (; i < floats; ++i) {
            const float scaled = row[i] * factor + shift;
            row[i] = least > scaled ? least : scaled;
          }
        }
    }
  }

  Lines lines() const {
    Lines found;
    for (const Inside* p = parts; p != parts + count; ++p)
      found.add(p->source, p->source_row, p->source_column, p->rows, p->columns, lanes);
    return found;
  }

  void copy_any(const Inside& p, const float* from, float* to) const {
    for (int r = 0; r < p.rows; ++r)
      if (p.source_column == lanes)
        std::memcpy(to + r * p.target_row, from + r * p.source_row, sizeof(float) * p.columns * lanes);
      else if (lanes == 1)
        for (int c = 0; c < p.columns; ++c) to[r * p.target_row + c] = from[r * p.source_row + c * p.source_column];
      else
        for (int c = 0; c < p.columns; ++c)
          for (int v = 0; v < lanes; ++v)
            to[r * p.target_row + c * lanes + v] = from[r * p.source_row + c * p.source_column + v];
  }
};

// Asks for the sources of the next block, a few lines at each visit of the current one.
class Ahead {
 public:
  Ahead(const Lines& lines, const float* source, int64_t channel, int first, int last, int visits)
      : lines_(lines), source_(source + channel * first), channel_(channel),
        left_(lines.count * (last - first)), quota_((left_ + visits - 1) / visits) {}

  FT_INLINE void ask() {
    const int n = std::min(quota_, left_);
    left_ -= n;
    for (int i = 0; i < n; ++i) {
      __builtin_prefetch(source_ + lines_.at[next_], 0, 2);
      if (++next_ == lines_.count) next_ = 0, source_ += channel_;
    }
  }

 private:
  const Lines& lines_;
  const float* source_;
  int64_t channel_;
  int left_, quota_, next_ = 0;
};

}  // namespace FT_NAMESPACE
