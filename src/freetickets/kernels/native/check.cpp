#include "check.h"

#include <algorithm>
#include <thread>

namespace freetickets {
namespace {

constexpr int64_t MOST_CHANNELS = int64_t{1} << 24;
constexpr int64_t MOST_WEIGHTS = INT32_MAX;  // their places are 32-bit integers
// Positions and distances within a channel of a group are 32-bit integers, and some are rounded up.
// (The offsets of entries are too, but count from the start of a packed tile, which is small.)
constexpr int64_t MOST_FLOATS = int64_t{1} << 30;
constexpr double MOST_FLOATS_IN_ALL = double(int64_t{1} << 46);  // beyond what a machine can address
constexpr int MOST_VECTORS = 12;                                 // of a position, in a tile
constexpr int MOST_LANES_OF_NORM = 16;                           // its masks have this size, and those of halos

bool within(int64_t number, int64_t least, int64_t most) { return number >= least && number <= most; }

// A vector must not hold a part of a position.
bool are_whole_vectors(int64_t lanes, int vector, int64_t most) {
  return within(lanes, 1, most) && lanes % vector == 0;
}

int64_t outputs_of(int64_t padded, int kernel, int stride) { return (padded - kernel) / stride + 1; }

Reason check(const GivenMaps* given, const Layer& layer, int vector, Lanes lanes, Groups groups, Maps& maps) {
  FT_NEED(given != nullptr, "there are no maps");
  const GivenMaps& g = *given;
  FT_NEED(within(g.groups, groups == Groups::SOME, INT32_MAX),
          "the number of groups must be from 1 to 2^31 - 1");
  if (g.lanes != 1 || lanes != Lanes::ONE_OR_MORE)
    FT_NEED(are_whole_vectors(g.lanes, vector, int64_t{MOST_VECTORS} * vector),
            "lanes must be from 1 to 12 vectors of this instruction set; 1 is possible for the forward pass");
  FT_NEED(g.height >= 1 && g.width >= 1, "maps must have one position at least");
  const Reason too_large = "maps must not have more than 2^30 floats in a channel of a group";
  FT_NEED(g.height <= MOST_FLOATS && g.width <= MOST_FLOATS, too_large);
  const int64_t rows = g.height + 2 * int64_t{layer.pad_h}, columns = g.width + 2 * int64_t{layer.pad_w};
  FT_NEED(rows <= MOST_FLOATS && columns <= MOST_FLOATS, too_large);
  FT_NEED(rows >= layer.kernel_h && columns >= layer.kernel_w, "maps must not be smaller than the kernel");
  const int64_t in = g.height * g.width;
  const int64_t out =
      outputs_of(rows, layer.kernel_h, layer.stride_h) * outputs_of(columns, layer.kernel_w, layer.stride_w);
  FT_NEED(std::max(in, out) <= MOST_FLOATS / g.lanes, too_large);
  const double most = std::max(double(in) * layer.inputs, double(out) * layer.outputs);
  FT_NEED(most * double(g.lanes) * double(g.groups) <= MOST_FLOATS_IN_ALL, "maps are larger than any memory");
  maps = {int32_t(g.groups), int32_t(g.lanes), int32_t(g.height), int32_t(g.width)};
  return nullptr;
}

}  // namespace

Reason check(const GivenLayer* given, Layer& layer) {
  FT_NEED(given != nullptr, "there is no layer");
  const GivenLayer& g = *given;
  FT_NEED(within(g.inputs, 1, MOST_CHANNELS) && within(g.outputs, 1, MOST_CHANNELS),
          "the number of channels must be from 1 to 2^24");
  FT_NEED(within(g.kernel_h, 1, MOST_KERNEL) && within(g.kernel_w, 1, MOST_KERNEL),
          "the sides of a kernel must be from 1 to 64");
  FT_NEED(within(g.stride_h, 1, MOST_STRIDE) && within(g.stride_w, 1, MOST_STRIDE),
          "strides must be from 1 to 8");
  FT_NEED(within(g.pad_h, 0, MOST_FLOATS) && within(g.pad_w, 0, MOST_FLOATS),
          "the padding must be from 0 to 2^30");
  FT_NEED(g.inputs * g.outputs <= MOST_WEIGHTS / (g.kernel_h * g.kernel_w),
          "a weight must not have more than 2^31 - 1 numbers, zeros and all");
  layer = {int32_t(g.inputs),   int32_t(g.outputs),  int32_t(g.kernel_h), int32_t(g.kernel_w),
           int32_t(g.stride_h), int32_t(g.stride_w), int32_t(g.pad_h),    int32_t(g.pad_w)};
  return nullptr;
}

Reason check(const GivenNorm* given, Norm& norm) {
  FT_NEED(given != nullptr, "there are no maps");
  const GivenNorm& g = *given;
  FT_NEED(within(g.groups, 0, INT32_MAX), "the number of groups must be from 0 to 2^31 - 1");
  FT_NEED(within(g.lanes, 1, INT32_MAX), "the number of lanes must be from 1 to 2^31 - 1");
  FT_NEED(within(g.channels, 0, INT32_MAX) && within(g.positions, 0, INT32_MAX),
          "the numbers of channels and positions must be from 0 to 2^31 - 1");
  FT_NEED(g.groups * g.lanes <= INT32_MAX, "a batch must not have more than 2^31 - 1 samples");
  FT_NEED(g.groups == 0 ? g.batch == 0 : within(g.batch, (g.groups - 1) * g.lanes + 1, g.groups * g.lanes),
          "the batch must fill its groups: only the last one may have empty lanes");
  FT_NEED(double(g.groups * g.lanes) * double(g.channels) * double(g.positions) <= MOST_FLOATS_IN_ALL,
          "maps are larger than any memory");
  norm = {int32_t(g.batch), int32_t(g.groups), int32_t(g.lanes), int32_t(g.channels), int32_t(g.positions)};
  return nullptr;
}

Reason check(const GivenHalo* given, Halo& halo) {
  FT_NEED(given != nullptr, "there are no maps");
  const GivenHalo& g = *given;
  FT_NEED(within(g.groups, 1, INT32_MAX) && within(g.channels, 1, MOST_CHANNELS),
          "there must be from 1 to 2^31 - 1 groups, and from 1 to 2^24 channels");
  FT_NEED(are_whole_vectors(g.lanes, 4, MOST_LANES_OF_NORM), "lanes must be 4, 8, 12 or 16");
  FT_NEED(within(g.grid_h, 1, g.lanes) && within(g.grid_w, 1, g.lanes) && g.lanes % (g.grid_h * g.grid_w) == 0,
          "the blocks of an image must fill the lanes, or a part of them that others can fill too");
  const Reason too_large = "maps must have from 1 to 2^30 floats in a channel of a group, borders among them";
  FT_NEED(within(g.height, 1, MOST_FLOATS) && within(g.width, 1, MOST_FLOATS), too_large);
  for (const int64_t border : {g.top, g.bottom, g.left, g.right})
    FT_NEED(within(border, 0, MOST_FLOATS), "borders must be from 0 to 2^30");
  const int64_t rows = g.height + g.top + g.bottom, columns = g.width + g.left + g.right;
  FT_NEED(rows <= MOST_FLOATS && columns <= MOST_FLOATS / rows / g.lanes, too_large);
  FT_NEED(double(rows * columns * g.lanes) * double(g.groups) * double(g.channels) <= MOST_FLOATS_IN_ALL,
          "maps are larger than any memory");
  halo = {int32_t(g.groups), int32_t(g.lanes),  int32_t(g.channels), int32_t(g.height),
          int32_t(g.width),  int32_t(g.grid_h), int32_t(g.grid_w),   int32_t(g.top),
          int32_t(g.bottom), int32_t(g.left),   int32_t(g.right)};
  return nullptr;
}

// Threads that the machine could not run at once are not started: an OpenMP runtime ends the process
// where it can't start one. No result depends on their number.
Reason check_threads(int given, int& threads) {
  static const int most = std::max(64, int(std::thread::hardware_concurrency()));
  FT_NEED(given >= 1, "there must be one thread at least");
  threads = std::min(given, most);
  return nullptr;
}

Reason check_nonzeros(const Layer& layer, int64_t nonzeros) {
  FT_NEED(within(nonzeros, 0, layer.weights()), "there must be 0 non-zeros or more, and not more than weights");
  return nullptr;
}

Reason check(const Kernels& kernels, const GivenLayer* layer, const GivenMaps* maps, const int32_t* plan,
             int64_t nonzeros, int threads, Lanes lanes, Groups groups, Call& call) {
  FT_TRY(check(layer, call.layer));
  FT_TRY(check(maps, call.layer, kernels.vector, lanes, groups, call.maps));
  FT_TRY(check_threads(threads, call.threads));
  FT_TRY(check_nonzeros(call.layer, nonzeros));
  return check_plan(plan, call.layer, nonzeros);
}

Reason check_winograd(const GivenLayer* given, Layer& layer) {
  FT_TRY(check(given, layer));
  const bool winograd = layer.kernel_h == 3 && layer.kernel_w == 3 && layer.phases() == 1 && layer.pad_h <= 2 &&
                        layer.pad_w <= 2;
  const bool pointwise = layer.taps() == 1 && layer.pad_h == 0 && layer.pad_w == 0;
  FT_NEED(winograd || pointwise,
          "Winograd's way is for 3x3, stride 1 and a padding of 2 at the most, and for 1x1 without padding");
  return nullptr;
}

Reason check_winograd(const Kernels& kernels, const GivenLayer* layer, const GivenMaps* maps, int threads,
                      Call& call) {
  FT_TRY(check_winograd(layer, call.layer));
  FT_TRY(check(maps, call.layer, kernels.vector, Lanes::SEVERAL, Groups::SOME, call.maps));
  return check_threads(threads, call.threads);
}

Reason check(const Kernels& kernels, const GivenNorm* norm, int threads, NormCall& call) {
  FT_TRY(check(norm, call.norm));
  FT_NEED(are_whole_vectors(call.norm.lanes, kernels.vector, MOST_LANES_OF_NORM),
          "lanes must be whole vectors of this instruction set, and 16 at the most");
  return check_threads(threads, call.threads);
}

Reason check(const Kernels& kernels, const GivenPool* given, int threads, PoolCall& call) {
  FT_NEED(given != nullptr, "there are no maps");
  const GivenPool& g = *given;
  FT_NEED(within(g.groups, 1, INT32_MAX) && within(g.channels, 1, MOST_CHANNELS),
          "there must be from 1 to 2^31 - 1 groups, and from 1 to 2^24 channels");
  FT_NEED(are_whole_vectors(g.lanes, kernels.vector, int64_t{MOST_VECTORS} * kernels.vector),
          "lanes must be from 1 to 12 vectors of this instruction set");
  FT_NEED(within(g.height, 1, MOST_FLOATS) && within(g.width, 1, MOST_FLOATS / g.height / g.lanes),
          "maps must have from 1 to 2^30 floats in a channel of a group");
  FT_NEED(within(g.window_h, 1, g.height) && within(g.window_w, 1, g.width),
          "a window must have one position at least, and fit into the maps");
  FT_NEED(g.window_h * g.window_w <= 256, "a window must not have more than 256 positions");
  FT_NEED(double(g.height * g.width * g.lanes) * double(g.groups) * double(g.channels) <= MOST_FLOATS_IN_ALL,
          "maps are larger than any memory");
  call.pool = {int32_t(g.groups), int32_t(g.lanes),    int32_t(g.channels), int32_t(g.height),
               int32_t(g.width),  int32_t(g.window_h), int32_t(g.window_w)};
  return check_threads(threads, call.threads);
}

}  // namespace freetickets
