// What an instruction set provides; `kernels.cpp` is compiled once for each.
#pragma once

#include "layer.h"

namespace freetickets {

struct Kernels {
  const char* name;
  int vector;  // the floats of one
  int lanes;
  int64_t (*bound)(bool from_cache, int64_t rounds);  // see bound.h
  Reason (*prepare)(const Layer& layer, const Maps& maps, const float* values, const int32_t* plan,
                    int64_t nonzeros, Entry* entries, int threads);
  Reason (*forward)(const Layer& layer, const Maps& maps, const float* x, const Entry* entries,
                    const int32_t* plan, int64_t nonzeros, const Fusion& fusion, float* y, int threads);
  Reason (*input_gradient)(const Layer& layer, const Maps& maps, const float* dy, const float* values,
                           const int32_t* plan, int64_t nonzeros, float* dx, int threads);
  Reason (*weight_gradient)(const Layer& layer, const Maps& maps, const float* x, const float* dy,
                            const int32_t* plan, int64_t nonzeros, float* dvalues, int threads);
  // Linear layers, whose samples lie side by side: see linear.h.
  Reason (*linear)(const Layer& layer, int64_t samples, const float* x, const float* values, const int32_t* plan,
                   int64_t nonzeros, const float* bias, int relu, float* y, int threads);
  Reason (*linear_backward)(const Layer& layer, int64_t samples, const float* x, const float* y, const float* dy,
                            const float* values, const int32_t* plan, int64_t nonzeros, float* dx, float* dvalues,
                            float* dbias, int threads);
  // Winograd's way, for 3x3 and stride 1: see winograd.h; products of 1x1: see products.h.
  int64_t (*winograd_size)(const Layer& layer, bool transposed);
  void (*winograd_weights)(const Layer& layer, const float* weight, bool transposed, float* weights, int threads);
  Reason (*winograd_forward)(const Layer& layer, const Maps& maps, const float* x, const float* weights,
                             const Fusion& fusion, float* y, int threads);
  Reason (*winograd_gradient)(const Layer& layer, const Maps& maps, const float* x, const float* dy, float* dw,
                              int threads);
  Reason (*normalize)(const Norm& n, const float* x, const float* weight, const float* bias, float eps,
                    int relu, float* y, float* mean, float* variance, int threads);
  void (*scale)(const Norm& n, const float* x, const float* weight, const float* bias, const float* mean,
                const float* variance, float eps, int relu, float* y, int threads);
  Reason (*normalize_backward)(const Norm& n, const float* x, const float* dy, const float* weight,
                             const float* bias, const float* mean, const float* variance, float eps,
                             int relu, int training, float* dx, float* dweight, float* dbias, int threads);
  void (*max_pool)(const Pool& pool, const float* x, float* y, uint8_t* places, int threads);
  void (*max_pool_backward)(const Pool& pool, const uint8_t* places, const float* dy, float* dx, int threads);
};

}  // namespace freetickets

namespace baseline {
extern const freetickets::Kernels KERNELS;
}
namespace avx2 {
extern const freetickets::Kernels KERNELS;
}
namespace avx512 {
extern const freetickets::Kernels KERNELS;
}
