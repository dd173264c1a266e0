// Chooses the instruction set, and passes the calls on to its kernels.
#include "api.h"

#include <atomic>
#include <cstring>
#include <initializer_list>

#include "check.h"
#include "kernels.h"
#include "parallel.h"

namespace freetickets {
namespace {

// The best first; null where this machine (or this build) has no such thing.
struct Choice {
  const char* name;
  const Kernels* kernels;
};

const Choice* choices() {
  static const Choice all[] = {
#ifdef FT_HAVE_AVX512
      {"avx512", __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")
                     ? &avx512::KERNELS
                     : nullptr},
#endif
#ifdef FT_HAVE_AVX2
      {"avx2", __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &avx2::KERNELS : nullptr},
#endif
      {"baseline", &baseline::KERNELS},
      {nullptr, nullptr},
  };
  return all;
}

const Kernels* best() {
  const Choice* choice = choices();
  while (choice->kernels == nullptr) ++choice;
  return choice->kernels;
}

// Ask once in a call: another thread may select other kernels in between, which would not understand
// what these have prepared.
std::atomic<const Kernels*> selected{nullptr};

const Kernels& kernels() {
  const Kernels* found = selected.load(std::memory_order_acquire);
  if (found == nullptr) {
    // Unless someone selected others meanwhile: then it is theirs.
    const Kernels* const mine = best();
    found = selected.compare_exchange_strong(found, mine) ? mine : found;
  }
  return *found;
}

// The kernels for what a call asks for. Vectors along rows of 8 positions are half empty with 16 lanes: those of AVX2
// do the same in half of the time. What one call has prepared, the next one for the same maps understands.
const Kernels& suited(const Kernels& kernels, const Call& c) {
#if defined(FT_HAVE_AVX512) && defined(FT_HAVE_AVX2)
  const int width = output_size(c.maps.width, c.layer.kernel_w, c.layer.stride_w, c.layer.pad_w);
  if (&kernels == &avx512::KERNELS && c.maps.lanes == 1 && width <= avx2::KERNELS.lanes) return avx2::KERNELS;
#endif
  return kernels;
}

// Refuses maps and statistics that are missing, unless there is nothing to do.
Reason check_norm(const Norm& n, std::initializer_list<const float*> maps,
                  std::initializer_list<const float*> statistics) {
  if (n.floats() > 0)
    for (const float* memory : maps) FT_TRY(check_maps(n.lanes, memory));
  for (const float* memory : statistics) FT_TRY(check_numbers(n.channels, memory));
  return nullptr;
}

}  // namespace

int place_bytes() { return 4 * kernels().lanes; }

}  // namespace freetickets

using namespace freetickets;

int ft_interface() { return 10; }

const char* ft_instruction_set() { return kernels().name; }
int ft_lanes() { return kernels().lanes; }

int64_t ft_bound(int from_cache, int64_t rounds, int threads) {
  std::atomic<int64_t> operations{0};
  parallel(threads, 1, threads, [&](int64_t begin, int64_t end) {
    for (; begin < end; ++begin) operations += kernels().bound(from_cache != 0, rounds);
  });
  return operations;
}

int ft_select(const char* name) {
  if (name == nullptr) return 0;
  for (const Choice* choice = choices(); choice->name != nullptr; ++choice)
    if (std::strcmp(choice->name, name) == 0 && choice->kernels != nullptr) {
      selected.store(choice->kernels, std::memory_order_release);
      return 1;
    }
  return 0;
}

const char* ft_forward(const GivenLayer* layer, const GivenMaps* maps, const float* x, const float* values,
                       const int32_t* plan, int64_t nonzeros, const float* bias, float* y, int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check(k, layer, maps, plan, nonzeros, threads, Lanes::ONE_OR_MORE, Groups::SOME, c));
  FT_TRY(check_maps(c.maps.lanes, x));
  FT_TRY(check_maps(c.maps.lanes, y));
  FT_TRY(check_numbers(nonzeros, values));
  auto* entries = reinterpret_cast<Entry*>(scratch(slots::ENTRIES, size_t(nonzeros) * 2));
  FT_NEED(entries != nullptr, FT_OUT_OF_MEMORY);
  FT_TRY(suited(k, c).prepare(c.layer, c.maps, values, plan, nonzeros, entries, c.threads));
  Fusion fusion;
  fusion.bias = bias;
  return suited(k, c).forward(c.layer, c.maps, x, entries, plan, nonzeros, fusion, y, c.threads);
}

// Checks a linear layer as a convolution of one row of samples.
static Reason check_linear(const Kernels& k, const GivenLayer* layer, int64_t samples, const int32_t* plan,
                           int64_t nonzeros, int threads, Call& c) {
  FT_NEED(samples > 0 && samples % k.lanes == 0, "samples must fill whole groups of lanes");
  const GivenMaps maps{1, k.lanes, 1, samples / k.lanes};
  FT_TRY(check(k, layer, &maps, plan, nonzeros, threads, Lanes::SEVERAL, Groups::SOME, c));
  FT_NEED(c.layer.taps() == 1 && c.layer.phases() == 1 && c.layer.pad_h == 0 && c.layer.pad_w == 0,
          "this is not a linear layer");
  return nullptr;
}

const char* ft_linear(const GivenLayer* layer, int64_t samples, const float* x, const float* values,
                      const int32_t* plan, int64_t nonzeros, const float* bias, int relu, float* y, int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check_linear(k, layer, samples, plan, nonzeros, threads, c));
  FT_TRY(check_maps(k.lanes, x));
  FT_TRY(check_maps(k.lanes, y));
  FT_TRY(check_numbers(nonzeros, values));
  return k.linear(c.layer, samples, x, values, plan, nonzeros, bias, relu, y, c.threads);
}

const char* ft_linear_backward(const GivenLayer* layer, int64_t samples, const float* x, const float* y,
                               const float* dy, const float* values, const int32_t* plan, int64_t nonzeros, float* dx,
                               float* dvalues, float* dbias, int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check_linear(k, layer, samples, plan, nonzeros, threads, c));
  FT_TRY(check_maps(k.lanes, dy));
  if (y != nullptr) FT_TRY(check_maps(k.lanes, y));
  if (dx != nullptr) {
    FT_TRY(check_maps(k.lanes, dx));
    FT_TRY(check_numbers(nonzeros, values));
  }
  if (dvalues != nullptr) FT_TRY(check_maps(k.lanes, x));
  return k.linear_backward(c.layer, samples, x, y, dy, values, plan, nonzeros, dx, dvalues, dbias, c.threads);
}

const char* ft_prepare(const GivenLayer* layer, const GivenMaps* maps, const float* values,
                       const int32_t* plan, int64_t nonzeros, Entry* entries, int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check(k, layer, maps, plan, nonzeros, threads, Lanes::ONE_OR_MORE, Groups::NONE_OR_MORE, c));
  FT_TRY(check_numbers(nonzeros, values));
  FT_TRY(check_numbers(nonzeros, entries));
  return suited(k, c).prepare(c.layer, c.maps, values, plan, nonzeros, entries, c.threads);
}

const char* ft_forward_fused(const GivenLayer* layer, const GivenMaps* maps, const float* x,
                             const Entry* entries, const int32_t* plan, int64_t nonzeros,
                             const float* factor, const float* shift, int rectify_input, const float* bias,
                             const float* residual, int rectify, float* y, int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check(k, layer, maps, plan, nonzeros, threads, Lanes::ONE_OR_MORE, Groups::SOME, c));
  FT_TRY(check_maps(c.maps.lanes, x));
  FT_TRY(check_maps(c.maps.lanes, y));
  FT_TRY(check_numbers(nonzeros, entries));
  FT_NEED((factor == nullptr) == (shift == nullptr), "a factor needs a shift, and a shift a factor");
  const Fusion fusion{factor, shift, rectify_input != 0, bias, residual, rectify != 0};
  return suited(k, c).forward(c.layer, c.maps, x, entries, plan, nonzeros, fusion, y, c.threads);
}

const char* ft_input_gradient(const GivenLayer* layer, const GivenMaps* maps, const float* dy,
                              const float* values, const int32_t* plan, int64_t nonzeros, float* dx,
                              int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check(k, layer, maps, plan, nonzeros, threads, Lanes::SEVERAL, Groups::SOME, c));
  FT_TRY(check_maps(c.maps.lanes, dy));
  FT_TRY(check_maps(c.maps.lanes, dx));
  FT_TRY(check_numbers(nonzeros, values));
  return k.input_gradient(c.layer, c.maps, dy, values, plan, nonzeros, dx, c.threads);
}

const char* ft_weight_gradient(const GivenLayer* layer, const GivenMaps* maps, const float* x,
                               const float* dy, const int32_t* plan, int64_t nonzeros, float* dvalues,
                               int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check(k, layer, maps, plan, nonzeros, threads, Lanes::SEVERAL, Groups::SOME, c));
  FT_TRY(check_maps(c.maps.lanes, x));
  FT_TRY(check_maps(c.maps.lanes, dy));
  FT_TRY(check_numbers(nonzeros, dvalues));
  return k.weight_gradient(c.layer, c.maps, x, dy, plan, nonzeros, dvalues, c.threads);
}

int64_t ft_winograd_size(const GivenLayer* layer, int transposed) {
  Layer l;
  return check_winograd(layer, l) == nullptr ? kernels().winograd_size(l, transposed != 0) : 0;
}

const char* ft_winograd_weights(const GivenLayer* layer, const float* weight, int transposed, float* weights,
                                int threads) {
  Layer l;
  int count;
  FT_TRY(check_winograd(layer, l));
  FT_TRY(check_threads(threads, count));
  FT_TRY(check_numbers(1, weight));
  FT_TRY(check_numbers(1, weights));
  kernels().winograd_weights(l, weight, transposed != 0, weights, count);
  return nullptr;
}

const char* ft_winograd_forward(const GivenLayer* layer, const GivenMaps* maps, const float* x,
                                const float* weights, const float* factor, const float* shift,
                                int rectify_input, const float* bias, const float* residual, int rectify,
                                float* y, int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check_winograd(k, layer, maps, threads, c));
  FT_TRY(check_maps(c.maps.lanes, x));
  FT_TRY(check_maps(c.maps.lanes, y));
  FT_TRY(check_numbers(1, weights));
  if (residual != nullptr) FT_TRY(check_maps(c.maps.lanes, residual));
  FT_NEED((factor == nullptr) == (shift == nullptr), "a factor needs a shift, and a shift a factor");
  const Fusion fusion{factor, shift, rectify_input != 0, bias, residual, rectify != 0};
  return k.winograd_forward(c.layer, c.maps, x, weights, fusion, y, c.threads);
}

const char* ft_winograd_gradient(const GivenLayer* layer, const GivenMaps* maps, const float* x, const float* dy,
                                 float* dw, int threads) {
  const Kernels& k = kernels();
  Call c;
  FT_TRY(check_winograd(k, layer, maps, threads, c));
  FT_NEED(c.layer.taps() == 9, "Winograd's gradient is that of 3x3 weights");
  FT_TRY(check_maps(c.maps.lanes, x));
  FT_TRY(check_maps(c.maps.lanes, dy));
  FT_TRY(check_numbers(1, dw));
  return k.winograd_gradient(c.layer, c.maps, x, dy, dw, c.threads);
}

const char* ft_normalize(const GivenNorm* n, const float* x, const float* weight, const float* bias,
                         float eps, int relu, float* y, float* mean, float* variance, int threads) {
  const Kernels& k = kernels();
  NormCall c;
  FT_TRY(check(k, n, threads, c));
  FT_TRY(check_norm(c.norm, {x, y}, {weight, bias, mean, variance}));
  return k.normalize(c.norm, x, weight, bias, eps, relu, y, mean, variance, c.threads);
}

const char* ft_scale(const GivenNorm* n, const float* x, const float* weight, const float* bias,
                     const float* mean, const float* variance, float eps, int relu, float* y, int threads) {
  const Kernels& k = kernels();
  NormCall c;
  FT_TRY(check(k, n, threads, c));
  FT_TRY(check_norm(c.norm, {x, y}, {weight, bias, mean, variance}));
  k.scale(c.norm, x, weight, bias, mean, variance, eps, relu, y, c.threads);
  return nullptr;
}

const char* ft_normalize_backward(const GivenNorm* n, const float* x, const float* dy,
                                  const float* weight, const float* bias, const float* mean,
                                  const float* variance, float eps, int relu, int training, float* dx,
                                  float* dweight, float* dbias, int threads) {
  const Kernels& k = kernels();
  NormCall c;
  FT_TRY(check(k, n, threads, c));
  FT_TRY(check_norm(c.norm, {x, dy, dx}, {weight, bias, mean, variance, dweight, dbias}));
  return k.normalize_backward(c.norm, x, dy, weight, bias, mean, variance, eps, relu, training, dx, dweight,
                              dbias, c.threads);
}

const char* ft_max_pool(const GivenPool* pool, const float* x, float* y, uint8_t* places, int threads) {
  const Kernels& k = kernels();
  PoolCall c;
  FT_TRY(check(k, pool, threads, c));
  for (const float* memory : {x, static_cast<const float*>(y)}) FT_TRY(check_maps(c.pool.lanes, memory));
  FT_TRY(check_places(c.pool.lanes, places));
  k.max_pool(c.pool, x, y, places, c.threads);
  return nullptr;
}

const char* ft_max_pool_backward(const GivenPool* pool, const uint8_t* places, const float* dy, float* dx,
                                 int threads) {
  const Kernels& k = kernels();
  PoolCall c;
  FT_TRY(check(k, pool, threads, c));
  for (const float* memory : {dy, static_cast<const float*>(dx)}) FT_TRY(check_maps(c.pool.lanes, memory));
  FT_TRY(check_places(c.pool.lanes, places));
  k.max_pool_backward(c.pool, places, dy, dx, c.threads);
  return nullptr;
}
