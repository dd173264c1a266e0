// Chooses the instruction set, and passes the calls on to its kernels.
#include "api.h"

#include <cstring>

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

const Kernels* selected = nullptr;

const Kernels& kernels() {
  if (selected == nullptr) selected = best();
  return *selected;
}

}  // namespace
}  // namespace freetickets

using namespace freetickets;

const char* ft_instruction_set() { return kernels().name; }
int ft_lanes() { return kernels().lanes; }

int ft_select(const char* name) {
  for (const Choice* choice = choices(); choice->name != nullptr; ++choice)
    if (std::strcmp(choice->name, name) == 0 && choice->kernels != nullptr) {
      selected = choice->kernels;
      return 1;
    }
  return 0;
}

void ft_forward(const Layer* layer, const Maps* maps, const float* x, const float* values,
                const int32_t* plan, int64_t nonzeros, const float* bias, float* y, int threads) {
  auto* entries = reinterpret_cast<Entry*>(scratch(slots::ENTRIES, size_t(nonzeros) * 2));
  kernels().prepare(*layer, *maps, values, plan, nonzeros, entries, threads);
  Fusion fusion;
  fusion.bias = bias;
  kernels().forward(*layer, *maps, x, entries, plan, nonzeros, fusion, y, threads);
}

void ft_prepare(const Layer* layer, const Maps* maps, const float* values, const int32_t* plan,
                int64_t nonzeros, Entry* entries, int threads) {
  kernels().prepare(*layer, *maps, values, plan, nonzeros, entries, threads);
}

void ft_forward_fused(const Layer* layer, const Maps* maps, const float* x, const Entry* entries,
                      const int32_t* plan, int64_t nonzeros, const float* factor, const float* shift,
                      int rectify_input, const float* bias, const float* residual, int rectify, float* y,
                      int threads) {
  const Fusion fusion{factor, shift, rectify_input != 0, bias, residual, rectify != 0};
  kernels().forward(*layer, *maps, x, entries, plan, nonzeros, fusion, y, threads);
}

void ft_input_gradient(const Layer* layer, const Maps* maps, const float* dy, const float* values,
                       const int32_t* plan, int64_t nonzeros, float* dx, int threads) {
  kernels().input_gradient(*layer, *maps, dy, values, plan, nonzeros, dx, threads);
}

void ft_weight_gradient(const Layer* layer, const Maps* maps, const float* x, const float* dy,
                        const int32_t* plan, int64_t nonzeros, float* dvalues, int threads) {
  kernels().weight_gradient(*layer, *maps, x, dy, plan, nonzeros, dvalues, threads);
}

void ft_normalize(const Norm* n, const float* x, const float* weight, const float* bias, float eps, int relu,
                  float* y, float* mean, float* variance, int threads) {
  kernels().normalize(*n, x, weight, bias, eps, relu, y, mean, variance, threads);
}

void ft_scale(const Norm* n, const float* x, const float* weight, const float* bias, const float* mean,
              const float* variance, float eps, int relu, float* y, int threads) {
  kernels().scale(*n, x, weight, bias, mean, variance, eps, relu, y, threads);
}

void ft_normalize_backward(const Norm* n, const float* x, const float* dy, const float* weight,
                           const float* bias, const float* mean, const float* variance, float eps, int relu,
                           int training, float* dx, float* dweight, float* dbias, int threads) {
  kernels().normalize_backward(*n, x, dy, weight, bias, mean, variance, eps, relu, training, dx, dweight,
                               dbias, threads);
}
