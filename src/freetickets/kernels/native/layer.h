// What a sparse layer is, and the order in which its non-zeros are visited. No instruction set here.
#pragma once

#include <cstdint>

namespace freetickets {

// Why something was not done, in words that last; null: it was.
using Reason = const char*;

constexpr int MOST_KERNEL = 64, MOST_STRIDE = 8;  // the sides of a kernel, and its steps

// A convolution. A linear layer is a 1x1 convolution.
struct Layer {
  int32_t inputs, outputs;
  int32_t kernel_h, kernel_w;
  int32_t stride_h, stride_w;
  int32_t pad_h, pad_w;

  int taps() const { return kernel_h * kernel_w; }
  int64_t weights() const { return int64_t{outputs} * inputs * taps(); }  // zeros and all
  int phases() const { return stride_h * stride_w; }
};

// The maps that a layer reads: (group, channel, row, column, lane) in memory. The samples of a batch
// lie in groups of `lanes`, innermost, so that a vector holds one position of several samples: moving
// by a pixel moves by whole vectors, whatever the stride and the padding are.
struct Maps {
  int32_t groups, lanes;
  int32_t height, width;
};

// The same memory as BatchNorm sees it. `batch` may leave lanes of the last group empty.
struct Norm {
  int32_t batch, groups, lanes, channels, positions;

  int64_t floats() const { return int64_t{groups} * lanes * channels * positions; }
};

// The maps that max-pooling reads, and its windows, which lie side by side: what is left at the edges counts nowhere.
struct Pool {
  int32_t groups, lanes, channels, height, width, window_h, window_w;

  int out_height() const { return height / window_h; }
  int out_width() const { return width / window_w; }
};

// The blocks of images, side by side in the lanes, and how many positions of its neighbours each one gets. A grid of
// blocks is an image, row by row; the lanes hold several images if there are more of them.
struct Halo {
  int32_t groups, lanes, channels;
  int32_t height, width;  // of a block
  int32_t grid_h, grid_w;
  int32_t top, bottom, left, right;
};

// The non-zeros in the order in which one direction visits them. "Source" channels are read,
// "result" channels are written: inputs and outputs for the forward pass, the other way round for
// the input gradient. Sources are visited in blocks that fit the first-level cache; a block's
// entries are grouped by phase (the positions of the result that share taps: only the input
// gradient of a strided convolution has more than one) and by result channel.
struct Order {
  int32_t sources, results, phases, block;  // `block`: sources in a block
  const int32_t* rows;         // [blocks][phases][results] + 1: where the entries begin
  const int32_t* permutation;  // [nonzeros]: the place of an entry among the layer's values
  const int32_t* taps;         // [nonzeros]: (source within its block) * taps + tap

  int blocks() const { return (sources + block - 1) / block; }
  const int32_t* row(int b, int phase) const {
    return rows + (static_cast<int64_t>(b) * phases + phase) * results;
  }
};

// A weight and the place of what it multiplies, in bytes from the start of the packed source.
struct Entry {
  int32_t offset;
  float value;
};

// What is done besides a convolution: to what it reads, relu?(x * factor + shift), channel by channel,
// and to what it writes, relu?(sum + bias + residual). Null: nothing.
struct Fusion {
  const float* factor = nullptr;
  const float* shift = nullptr;
  bool rectify_input = false;
  const float* bias = nullptr;      // one for each channel
  const float* residual = nullptr;  // like the result
  bool rectify = false;
};

// What a plan begins with: whom it belongs to, so that nobody takes it for another layer's.
struct PlanHeader {
  int32_t kind;  // `PLAN`, or it is none
  Layer layer;
  int32_t nonzeros;
  int32_t farthest;  // the entry of the forward order that reads farthest, whatever the tile is
  int32_t block, transposed_block;  // sources in a block of each order
  int32_t unused[3];  // the rest of a cache line: rows stay aligned
};
constexpr int32_t PLAN = 0x46545032;
constexpr int64_t PLAN_HEADER = sizeof(PlanHeader) / sizeof(int32_t);
static_assert(PLAN_HEADER == 16, "a cache line");

inline const PlanHeader& header_of(const int32_t* plan) { return *reinterpret_cast<const PlanHeader*>(plan); }

// The bytes of one position of a group, for the instruction set in use.
int place_bytes();

Order forward_order(const Layer& layer, int64_t nonzeros, const int32_t* plan);
Order transposed_order(const Layer& layer, int64_t nonzeros, const int32_t* plan);

// The size of a convolution's output, in one dimension.
inline int output_size(int size, int kernel, int stride, int pad) {
  return (size + 2 * pad - kernel) / stride + 1;
}

inline int divide_down(int a, int b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

}  // namespace freetickets
