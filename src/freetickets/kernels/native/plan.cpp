// Sorts the non-zeros of a layer into the orders in which the kernels visit them.
#include <algorithm>
#include <vector>

#include "api.h"
#include "layer.h"

namespace freetickets {

// The places of a source, in one dimension, that a tile of `size` results reads: those of taps that
// agree in their remainder after division by the stride lie in one plane.
static int reach(int size, int kernel, int stride) { return size + (kernel - 1) / stride; }

// As many sources as the first-level cache holds, but enough for a visit of one result channel to be
// worth the loading and storing of its sums. `places`: of a source that a tile of 3x4 vectors reads.
// The numbers were found by measurement (AVX2, 32 KB).
static int32_t block_size(const Layer& layer, int sources, int results, int64_t nonzeros, int places) {
  const double mean = static_cast<double>(nonzeros) / std::max<int64_t>(1, int64_t{sources} * results);
  const double worthwhile = (layer.taps() == 1 ? 20.0 : 16.0) / std::max(mean, 1e-9);
  const double cached = 24000.0 / (places * 32);
  // Without a halo a tile is read in order, which the second-level cache can nearly keep up with.
  const double wanted = std::max(cached, std::min(worthwhile, (layer.taps() == 1 ? 16 : 3) * cached));
  const int blocks = std::max(1, static_cast<int>(sources / wanted + 0.5));
  return (sources + blocks - 1) / blocks;
}

namespace {

int64_t order_size(const Order& order, int64_t nonzeros) {
  return int64_t{order.blocks()} * order.phases * order.results + 1 + 2 * nonzeros;
}

Order lay_out(Order order, int64_t nonzeros, const int32_t* memory) {
  order.rows = memory;
  order.permutation = memory + order_size(order, nonzeros) - 2 * nonzeros;
  order.taps = order.permutation + nonzeros;
  return order;
}

// One counting sort: stable, so the entries of a row stay in the order of the sources.
template <class Row, class Tap>
void sort_entries(const Order& order, int64_t nonzeros, Row row_of, Tap tap_of) {
  auto* rows = const_cast<int32_t*>(order.rows);
  auto* permutation = const_cast<int32_t*>(order.permutation);
  auto* taps = const_cast<int32_t*>(order.taps);
  const int64_t count = int64_t{order.blocks()} * order.phases * order.results;
  std::fill(rows, rows + count + 1, 0);
  for (int64_t i = 0; i < nonzeros; ++i) ++rows[row_of(i) + 1];
  for (int64_t r = 0; r < count; ++r) rows[r + 1] += rows[r];
  std::vector<int32_t> next(rows, rows + count);
  for (int64_t i = 0; i < nonzeros; ++i) {
    const int32_t place = next[row_of(i)]++;
    permutation[place] = static_cast<int32_t>(i);
    taps[place] = tap_of(i);
  }
}

}  // namespace

Order forward_order(const Layer& layer, int64_t nonzeros, const int32_t* plan) {
  Order order{layer.inputs, layer.outputs, 1, 0, nullptr, nullptr, nullptr};
  const int rows = std::min(layer.kernel_h, layer.stride_h) * reach(3, layer.kernel_h, layer.stride_h);
  const int columns = std::min(layer.kernel_w, layer.stride_w) * reach(4, layer.kernel_w, layer.stride_w);
  order.block = block_size(layer, layer.inputs, layer.outputs, nonzeros, rows * columns);
  return lay_out(order, nonzeros, plan);
}

Order transposed_order(const Layer& layer, int64_t nonzeros, const int32_t* plan) {
  Order order{layer.outputs, layer.inputs, layer.phases(), 0, nullptr, nullptr, nullptr};
  const int rows = reach(3, layer.kernel_h, layer.stride_h), columns = reach(4, layer.kernel_w, layer.stride_w);
  order.block = block_size(layer, layer.outputs, layer.inputs, nonzeros, rows * columns);
  const Order before = forward_order(layer, nonzeros, plan);
  return lay_out(order, nonzeros, plan + order_size(before, nonzeros));
}

}  // namespace freetickets

using namespace freetickets;

extern "C" int64_t ft_plan_size(const Layer* layer, int64_t nonzeros) {
  return order_size(forward_order(*layer, nonzeros, nullptr), nonzeros) +
         order_size(transposed_order(*layer, nonzeros, nullptr), nonzeros);
}

extern "C" void ft_plan(const Layer* layer, const int32_t* indices, int64_t nonzeros, int32_t* plan) {
  const int taps = layer->taps(), width = layer->kernel_w, inputs = layer->inputs;
  const auto tap = [=](int64_t i) { return indices[i] % taps; };
  const auto input = [=](int64_t i) { return indices[i] / taps % inputs; };
  const auto output = [=](int64_t i) { return indices[i] / taps / inputs; };

  const Order forward = forward_order(*layer, nonzeros, plan);
  sort_entries(
      forward, nonzeros,
      [&](int64_t i) { return int64_t{input(i) / forward.block} * forward.results + output(i); },
      [&](int64_t i) { return input(i) % forward.block * taps + tap(i); });

  const Order back = transposed_order(*layer, nonzeros, plan);
  const int stride_h = layer->stride_h, stride_w = layer->stride_w;
  const auto phase = [=](int64_t i) {
    return tap(i) / width % stride_h * stride_w + tap(i) % width % stride_w;
  };
  sort_entries(
      back, nonzeros,
      [&](int64_t i) {
        return (int64_t{output(i) / back.block} * back.phases + phase(i)) * back.results + input(i);
      },
      [&](int64_t i) { return output(i) % back.block * taps + tap(i); });
}
