// Sorts the non-zeros of a layer into the orders in which the kernels visit them.
#include <algorithm>
#include <cstring>

#if defined(__linux__)
#include <unistd.h>
#endif

#include "api.h"
#include "check.h"
#include "layer.h"

namespace freetickets {

// In bytes. Where nobody tells, what most machines have.
static double first_level_cache() {
#if defined(_SC_LEVEL1_DCACHE_SIZE)
  static const long size = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  if (size >= 1 << 14 && size <= 1 << 20) return double(size);
#endif
  return 32768;
}

// The places of a source, in one dimension, that a tile of `size` results reads: those of taps that
// agree in their remainder after division by the stride lie in one plane.
static int reach(int size, int kernel, int stride) { return size + (kernel - 1) / stride; }

// As many sources as the first-level cache holds, but enough for a visit of one result channel to be
// worth the loading and storing of its sums. `places`: of a source that a tile of 3x4 vectors reads. The
// numbers were found by measurement.
static int32_t block_size(const Layer& layer, int sources, int results, int64_t nonzeros, int places) {
  const double mean = static_cast<double>(nonzeros) / std::max<int64_t>(1, int64_t{sources} * results);
  const double worthwhile = (layer.taps() == 1 ? 20.0 : 16.0) / std::max(mean, 1e-9);
  const double cached = 0.73 * first_level_cache() / (double(places) * place_bytes());
  // Without a halo a tile is read in order, which the second-level cache can nearly keep up with.
  const double wanted = std::max(cached, std::min(worthwhile, (layer.taps() == 1 ? 16 : 3) * cached));
  const int blocks = std::max(1, static_cast<int>(sources / wanted + 0.5));
  return (sources + blocks - 1) / blocks;
}

namespace {

int64_t rows_of(const Order& order) { return int64_t{order.blocks()} * order.phases * order.results; }
int64_t order_size(const Order& order, int64_t nonzeros) { return rows_of(order) + 1 + 2 * nonzeros; }

Order lay_out(Order order, int64_t nonzeros, const int32_t* memory) {
  order.rows = memory;
  order.permutation = memory + rows_of(order) + 1;
  order.taps = order.permutation + nonzeros;
  return order;
}

// The orders without their memory.
Order forward_shape(const Layer& layer, int32_t block) {
  return {layer.inputs, layer.outputs, 1, block, nullptr, nullptr, nullptr};
}

Order transposed_shape(const Layer& layer, int32_t block) {
  return {layer.outputs, layer.inputs, layer.phases(), block, nullptr, nullptr, nullptr};
}

int32_t forward_block(const Layer& layer, int64_t nonzeros) {
  const int rows = std::min(layer.kernel_h, layer.stride_h) * reach(3, layer.kernel_h, layer.stride_h);
  const int columns = std::min(layer.kernel_w, layer.stride_w) * reach(4, layer.kernel_w, layer.stride_w);
  return block_size(layer, layer.inputs, layer.outputs, nonzeros, rows * columns);
}

int32_t transposed_block(const Layer& layer, int64_t nonzeros) {
  const int rows = reach(3, layer.kernel_h, layer.stride_h), columns = reach(4, layer.kernel_w, layer.stride_w);
  return block_size(layer, layer.outputs, layer.inputs, nonzeros, rows * columns);
}

int64_t plan_size(const Layer& layer, int64_t nonzeros, int32_t block, int32_t back) {
  return PLAN_HEADER + order_size(forward_shape(layer, block), nonzeros) +
         order_size(transposed_shape(layer, back), nonzeros);
}

// One counting sort: stable, so the entries of a row stay in the order of the sources. It takes no memory
// but the plan's: while entries are placed, `rows[r]` is where the next one of row r belongs, and in the
// end that is where the following row begins.
template <class Row, class Tap>
void sort_entries(const Order& order, int64_t nonzeros, Row row_of, Tap tap_of) {
  auto* rows = const_cast<int32_t*>(order.rows);
  auto* permutation = const_cast<int32_t*>(order.permutation);
  auto* taps = const_cast<int32_t*>(order.taps);
  const int64_t count = rows_of(order);
  std::fill(rows, rows + count + 1, 0);
  for (int64_t i = 0; i < nonzeros; ++i) ++rows[row_of(i) + 1];
  for (int64_t r = 0; r < count; ++r) rows[r + 1] += rows[r];
  for (int64_t i = 0; i < nonzeros; ++i) {
    const int32_t place = rows[row_of(i)]++;
    permutation[place] = static_cast<int32_t>(i);
    taps[place] = tap_of(i);
  }
  std::copy_backward(rows, rows + count, rows + count + 1);
  rows[0] = 0;
}

// The entry that reads farthest from the start of what is packed. Sources lie there one behind the
// other, in each its planes (the taps of one remainder), in each its rows: so whatever a tile's size is.
int32_t farthest_entry(const Layer& layer, const Order& order, int64_t nonzeros) {
  const int taps = layer.taps();
  // The rank of a tap is that of its row and that of its column: first come the remainders of both.
  int rows[MOST_KERNEL], columns[MOST_KERNEL];
  const auto rank = [](int kernel, int stride, int pad, int of_remainder, int of_place, int* ranks) {
    const int first = divide_down(-pad, stride);
    for (int k = 0; k < kernel; ++k) {
      const int place = divide_down(k - pad, stride);
      ranks[k] = (k - pad - place * stride) * of_remainder + (place - first) * of_place;
    }
  };
  constexpr int PLACES = MOST_KERNEL * MOST_KERNEL;
  rank(layer.kernel_h, layer.stride_h, layer.pad_h, MOST_STRIDE * PLACES, MOST_KERNEL, rows);
  rank(layer.kernel_w, layer.stride_w, layer.pad_w, PLACES, 1, columns);
  int64_t farthest = 0;
  int source = -1, most = -1;
  for (int64_t i = 0; i < nonzeros; ++i) {
    if (order.taps[i] < source * taps) continue;
    if (order.taps[i] >= (source + 1) * taps) source = order.taps[i] / taps, most = -1;
    const int tap = order.taps[i] - source * taps;
    const int mine = rows[tap / layer.kernel_w] + columns[tap % layer.kernel_w];
    if (mine > most) most = mine, farthest = i;
  }
  return static_cast<int32_t>(farthest);
}

Reason check_indices(const Layer& layer, const int32_t* indices, int64_t nonzeros) {
  int64_t before = -1;
  for (int64_t i = 0; i < nonzeros; ++i) {
    FT_NEED(indices[i] > before, "the places of the non-zeros must be ascending, from 0 on");
    before = indices[i];
  }
  FT_NEED(before < layer.weights(), "a non-zero has its place beyond the end of the weight");
  return nullptr;
}

// The header of the plan says how large its blocks are: that is all that the machine has to do with it.
void make_plan(const Layer& layer, const int32_t* indices, int64_t nonzeros, int32_t* plan) {
  const int taps = layer.taps(), width = layer.kernel_w, inputs = layer.inputs;
  const auto tap = [=](int64_t i) { return indices[i] % taps; };
  const auto input = [=](int64_t i) { return indices[i] / taps % inputs; };
  const auto output = [=](int64_t i) { return indices[i] / taps / inputs; };

  const Order forward = forward_order(layer, nonzeros, plan);
  sort_entries(
      forward, nonzeros,
      [&](int64_t i) { return int64_t{input(i) / forward.block} * forward.results + output(i); },
      [&](int64_t i) { return input(i) % forward.block * taps + tap(i); });

  const Order back = transposed_order(layer, nonzeros, plan);
  const int stride_h = layer.stride_h, stride_w = layer.stride_w;
  const auto phase = [=](int64_t i) {
    return tap(i) / width % stride_h * stride_w + tap(i) % width % stride_w;
  };
  sort_entries(
      back, nonzeros,
      [&](int64_t i) {
        return (int64_t{output(i) / back.block} * back.phases + phase(i)) * back.results + input(i);
      },
      [&](int64_t i) { return output(i) % back.block * taps + tap(i); });

  reinterpret_cast<PlanHeader*>(plan)->farthest = farthest_entry(layer, forward, nonzeros);
}

}  // namespace

Order forward_order(const Layer& layer, int64_t nonzeros, const int32_t* plan) {
  return lay_out(forward_shape(layer, header_of(plan).block), nonzeros, plan + PLAN_HEADER);
}

Order transposed_order(const Layer& layer, int64_t nonzeros, const int32_t* plan) {
  const int64_t before = PLAN_HEADER + order_size(forward_shape(layer, header_of(plan).block), nonzeros);
  return lay_out(transposed_shape(layer, header_of(plan).transposed_block), nonzeros, plan + before);
}

Reason check_plan(const int32_t* plan, const Layer& layer, int64_t nonzeros) {
  FT_NEED(plan != nullptr && header_of(plan).kind == PLAN, "there is no plan");
  const PlanHeader& header = header_of(plan);
  FT_NEED(std::memcmp(&header.layer, &layer, sizeof layer) == 0 && header.nonzeros == nonzeros,
          "the plan was made for another layer, or for another number of non-zeros");
  return nullptr;
}

}  // namespace freetickets

using namespace freetickets;

int64_t ft_plan_size(const GivenLayer* given, int64_t nonzeros) {
  Layer layer;
  if (check(given, layer) != nullptr || check_nonzeros(layer, nonzeros) != nullptr) return 0;
  return plan_size(layer, nonzeros, forward_block(layer, nonzeros), transposed_block(layer, nonzeros));
}

const char* ft_plan(const GivenLayer* given, const int32_t* indices, int64_t nonzeros, int32_t* plan,
                    int64_t size) {
  Layer layer;
  FT_TRY(check(given, layer));
  FT_TRY(check_nonzeros(layer, nonzeros));
  FT_TRY(check_numbers(nonzeros, indices));
  FT_NEED(plan != nullptr, "there is no memory for the plan");
  FT_TRY(check_indices(layer, indices, nonzeros));
  const int32_t block = forward_block(layer, nonzeros), back = transposed_block(layer, nonzeros);
  FT_NEED(size == plan_size(layer, nonzeros, block, back), "the plan has another size");
  *reinterpret_cast<PlanHeader*>(plan) = {PLAN, layer, static_cast<int32_t>(nonzeros), 0, block, back, {}};
  make_plan(layer, indices, nonzeros, plan);
  return nullptr;
}
