// Max-pooling in the layout of the convolutions, with windows side by side.
#pragma once

#include <algorithm>

#include "layer.h"
#include "parallel.h"
#include "vector.h"

namespace FT_NAMESPACE {

using freetickets::Pool;

// Calls `body(where the window begins in x, where its result lies in y)` for all windows, a vector of lanes at a time.
// A thread has whole groups if there are enough of them, as in `for_parts`.
template <class Channel, class Body>
FT_INLINE void for_windows(const Pool& p, int threads, Channel&& begin_channel, Body&& body) {
  const int64_t row = int64_t{p.width} * p.lanes, source = row * p.height;
  const int64_t result = int64_t{p.out_height()} * p.out_width() * p.lanes;
  const int64_t channels = int64_t{p.groups} * p.channels;
  freetickets::parallel(channels, std::max(1, p.channels / 8), threads, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      begin_channel(source * c);
      int64_t to = result * c;
      for (int y = 0; y < p.out_height(); ++y)
        for (int x = 0; x < p.out_width(); ++x)
          for (int lane = 0; lane < p.lanes; lane += LANES, to += LANES)
            body(source * c + row * y * p.window_h + int64_t{x} * p.window_w * p.lanes + lane, to);
    }
  });
}

// Calls `body` with each place of a window and its number, in the order in which the first of equals counts.
template <class Body>
FT_INLINE void for_places(const Pool& p, int window_h, int window_w, Body&& body) {
  for (int i = 0; i < window_h; ++i)
    for (int j = 0; j < window_w; ++j) body((int64_t{i} * p.width + j) * p.lanes, i * window_w + j);
}

// The places of a vector's lanes, a byte each.
typedef decltype(Vector{} > Vector{}) Integers;
typedef uint8_t Bytes __attribute__((vector_size(FT_LANES), aligned(FT_LANES), may_alias));

// y = the largest of each window, places = which of them it is; of a window with NaN, the last of these.
template <class Window>
FT_INLINE void max_pool(const Pool& p, Window window, const float* x, float* y, uint8_t* places, int threads) {
  for_windows(p, threads, [](int64_t) {}, [&](int64_t from, int64_t to) {
    Vector most = load(x + from);
    Integers place{};
    for_places(p, window.height(), window.width(), [&](int64_t at, int number) {
      const Vector v = load(x + from + at);
      const auto more = (v > most) | (v != v);
      most = more ? v : most;
      place = more ? Integers{} + number : place;
    });
    store(y + to, most);
    *reinterpret_cast<Bytes*>(places + to) = __builtin_convertvector(place, Bytes);
  });
}

// dx = dy in the places, else 0.
template <class Window>
FT_INLINE void max_pool_backward(const Pool& p, Window window, const uint8_t* places, const float* dy, float* dx,
                                 int threads) {
  const bool whole = p.height % window.height() == 0 && p.width % window.width() == 0;
  const int64_t source = int64_t{p.height} * p.width * p.lanes;
  const auto clear = [&](int64_t at) {
    if (!whole) std::fill_n(dx + at, source, 0.0f);
  };
  for_windows(p, threads, clear, [&](int64_t from, int64_t to) {
    const Integers place = __builtin_convertvector(*reinterpret_cast<const Bytes*>(places + to), Integers);
    const Vector gradient = load(dy + to);
    for_places(p, window.height(), window.width(), [&](int64_t at, int number) {
      store(dx + from + at, place == number ? gradient : Vector{});
    });
  });
}

// Calls `body` with the window: where it is one of 2x2, the compiler knows.
template <class Body>
FT_INLINE void with_window(const Pool& p, Body&& body) {
  struct Two {
    int height() const { return 2; }
    int width() const { return 2; }
  };
  struct Any {
    int h, w;
    int height() const { return h; }
    int width() const { return w; }
  };
  if (p.window_h == 2 && p.window_w == 2)
    body(Two{});
  else
    body(Any{p.window_h, p.window_w});
}

inline void pool(const Pool& p, const float* x, float* y, uint8_t* places, int threads) {
  with_window(p, [&](auto window) { max_pool(p, window, x, y, places, threads); });
}

inline void pool_backward(const Pool& p, const uint8_t* places, const float* dy, float* dx, int threads) {
  with_window(p, [&](auto window) { max_pool_backward(p, window, places, dy, dx, threads); });
}

}  // namespace FT_NAMESPACE
