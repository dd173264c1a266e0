// Images in blocks that lie side by side as if they were samples: see blocks.py. A convolution reads some positions of
// a block's neighbours too, so it gets copies of the blocks with a border of those.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "api.h"
#include "check.h"
#include "parallel.h"

namespace freetickets {
namespace {

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t Bits __attribute__((vector_size(16), aligned(4), may_alias));
constexpr int WIDTH = 4;

constexpr int MOST_LANES = 16;
constexpr int MOST_STEPS = 4 * MOST_LANES;  // from a block to another of the same image: (2 rows - 1) (2 columns - 1)

// For each step, and each lane's block: whether the image has a block there (all bits), or not (none).
struct Neighbours {
  int rows, columns;
  int32_t there[MOST_STEPS][MOST_LANES];

  explicit Neighbours(const Halo& h) : rows(h.grid_h), columns(h.grid_w) {
    for (int down = 1 - rows; down < rows; ++down)
      for (int right = 1 - columns; right < columns; ++right)
        for (int lane = 0; lane < h.lanes; ++lane) {
          const int row = lane / columns % rows + down, column = lane % columns + right;
          const bool inside = row >= 0 && row < rows && column >= 0 && column < columns;
          there[step(down, right)][lane] = inside ? -1 : 0;
        }
  }

  // Null: no block has such a neighbour.
  const int32_t* at(int64_t down, int64_t right) const {
    const bool none = down <= -rows || down >= rows || right <= -columns || right >= columns;
    return none ? nullptr : there[step(down, right)];
  }

  int64_t step(int64_t down, int64_t right) const {
    return (down + rows - 1) * (2 * columns - 1) + right + columns - 1;
  }
};

// What is done to a channel on the way: relu?(x * factor + shift).
struct Scaling {
  float factor, shift, least;

  Four operator()(const float* p) const {
    const Four v = *reinterpret_cast<const Four*>(p) * factor + shift, bound = Four{} + least;
    return bound > v ? bound : v;
  }
};

// What `halo` does for one channel of one group. `begin` and `end` are where all of the maps do.
void copy_channel(const Halo& h, const Neighbours& neighbours, const Scaling& scaled, const float* begin,
                  const float* channel, const float* end, float* to) {
  const int64_t lanes = h.lanes;
  const auto store = [](float* at, Four v) { *reinterpret_cast<Four*>(at) = v; };
  // `n` floats of neighbours: a lane's neighbour is a lane of the same position, `step` lanes away.
  const auto copy_neighbours = [&](const float* from, int64_t step, const int32_t* there, int64_t n) {
    const bool within = from - begin >= -step && end - from >= n + step;
    for (int64_t i = 0; i < n; i += lanes)
      for (int64_t lane = 0; lane < lanes; lane += WIDTH) {
        float few[WIDTH] = {};
        if (!within)  // of the first and the last position, only what is there may be read
          for (int k = 0; k < WIDTH; ++k)
            if (there[lane + k] != 0) few[k] = from[i + lane + k + step];
        const Bits v = reinterpret_cast<Bits>(scaled(within ? from + i + lane + step : few));
        store(to + i + lane, reinterpret_cast<Four>(v & *reinterpret_cast<const Bits*>(there + lane)));
      }
  };
  const int64_t height = h.height, width = h.width, last_row = height + h.bottom, last_column = width + h.right;
  for (int64_t row = -h.top; row < last_row; ++row) {
    const int64_t down = divide_down(int(row), h.height);
    for (int64_t right = divide_down(-h.left, h.width); right * width < last_column; ++right) {
      const int64_t first = std::max<int64_t>(-h.left, right * width), last = std::min(last_column, (right + 1) * width);
      const float* from = channel + ((row - down * height) * width + first - right * width) * lanes;
      const int64_t n = (last - first) * lanes;
      if (const int32_t* there = neighbours.at(down, right); there == nullptr)
        std::memset(to, 0, sizeof(float) * size_t(n));
      else if (down == 0 && right == 0)
        for (int64_t i = 0; i < n; i += WIDTH) store(to + i, scaled(from + i));
      else
        copy_neighbours(from, down * h.grid_w + right, there, n);
      to += n;
    }
  }
}

}  // namespace
}  // namespace freetickets

using namespace freetickets;

const char* ft_halo(const GivenHalo* given, const float* x, const float* factor, const float* shift, int rectify,
                    float* y, int threads) {
  Halo h;
  FT_TRY(check(given, h));
  FT_TRY(check_threads(threads, threads));
  FT_TRY(check_maps(h.lanes, x));
  FT_TRY(check_maps(h.lanes, y));
  FT_NEED((factor == nullptr) == (shift == nullptr), "a factor needs a shift, and a shift a factor");
  const Neighbours neighbours(h);
  const int64_t from = int64_t{h.height} * h.width * h.lanes, all = int64_t{h.groups} * h.channels;
  const int64_t to = (int64_t{h.height} + h.top + h.bottom) * (int64_t{h.width} + h.left + h.right) * h.lanes;
  parallel(all, 8, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t c = i % h.channels;
      const Scaling plain{1.0f, 0.0f, -INFINITY};
      const Scaling scaling{factor == nullptr ? 1.0f : factor[c], factor == nullptr ? 0.0f : shift[c],
                            rectify != 0 ? 0.0f : -INFINITY};
      copy_channel(h, neighbours, factor == nullptr ? plain : scaling, x, x + i * from, x + all * from, y + i * to);
    }
  });
  return nullptr;
}
