// The functions that Python calls, with plain pointers: no header of PyTorch or Python is needed.
//
// A function that computes returns null, or a text that says why it did not: numbers that it can't work
// with, or `FT_OUT_OF_MEMORY`. Results are undefined then, but nothing else was written. What can't be
// checked is that the memory behind a pointer has the size that the numbers ask for.
#pragma once

#include "layer.h"

#define FT_API extern "C" __attribute__((visibility("default")))

#define FT_OUT_OF_MEMORY "out of memory"

namespace freetickets {

// `Layer`, `Maps`, `Norm`, `Pool` and `Halo` as Python gives them: in 64 bits, so that no number loses its upper half
// before anyone has looked at it.
struct GivenLayer {
  int64_t inputs, outputs;
  int64_t kernel_h, kernel_w;
  int64_t stride_h, stride_w;
  int64_t pad_h, pad_w;
};
struct GivenMaps {
  int64_t groups, lanes;
  int64_t height, width;
};
struct GivenNorm {
  int64_t batch, groups, lanes, channels, positions;
};
struct GivenPool {
  int64_t groups, lanes, channels;
  int64_t height, width;
  int64_t window_h, window_w;
};
struct GivenHalo {
  int64_t groups, lanes, channels;
  int64_t height, width;
  int64_t grid_h, grid_w;
  int64_t top, bottom, left, right;
};

}  // namespace freetickets

// Which functions there are, and with which arguments: a number that grows with every change of them.
FT_API int ft_interface();

// The number of 32-bit integers in a layer's plan (0: there is no such layer), and the plan itself, from
// the places of its non-zeros in the dense weight (outputs, inputs, kernel_h, kernel_w), ascending.
FT_API int64_t ft_plan_size(const freetickets::GivenLayer* layer, int64_t nonzeros);
FT_API const char* ft_plan(const freetickets::GivenLayer* layer, const int32_t* indices, int64_t nonzeros,
                           int32_t* plan, int64_t size);

// Has the kernels run on the threads of an OpenMP runtime: pass its GOMP_parallel and omp_get_thread_num, or null.
FT_API void ft_use_openmp(void* gomp_parallel, void* thread_number);

// Instruction sets: "baseline", "avx2", "avx512". `ft_select` returns whether this machine has it;
// the best one is selected at the start. `ft_lanes`: the samples of a group that suit it.
FT_API const char* ft_instruction_set();
FT_API int ft_select(const char* name);
FT_API int ft_lanes();

// Multiplies and adds on each thread, in registers or from the first-level cache: what kernels are measured by.
// Returns the operations of all threads.
FT_API int64_t ft_bound(int from_cache, int64_t rounds, int threads);

// A new float tensor of memory that is used again and again, as a DLManagedTensor (DLPack): null if
// there is no memory. `ft_release_memory` gives back to the system what is not in use.
FT_API void* ft_new_tensor(const int64_t* shape, int dimensions);
FT_API void ft_release_memory();

// The three directions. All tensors are aligned to 64 bytes, and lie as `Maps` says; with one lane
// (the layout of PyTorch itself) vectors lie along the rows of a map, and only `ft_forward` works.
FT_API const char* ft_forward(const freetickets::GivenLayer* layer, const freetickets::GivenMaps* maps,
                              const float* x, const float* values, const int32_t* plan, int64_t nonzeros,
                              const float* bias, float* y, int threads);
FT_API const char* ft_input_gradient(const freetickets::GivenLayer* layer,
                                     const freetickets::GivenMaps* maps, const float* dy,
                                     const float* values, const int32_t* plan, int64_t nonzeros, float* dx,
                                     int threads);
FT_API const char* ft_weight_gradient(const freetickets::GivenLayer* layer,
                                      const freetickets::GivenMaps* maps, const float* x, const float* dy,
                                      const int32_t* plan, int64_t nonzeros, float* dvalues, int threads);

// Linear layers, one call a direction, for `samples` that fill whole groups of lanes and lie side by side: a feature
// is a row of them, aligned to 64 bytes. y = relu?(layer); a gradient is computed if there is memory for it, and
// takes the result y if ReLU was part of it.
FT_API const char* ft_linear(const freetickets::GivenLayer* layer, int64_t samples, const float* x,
                             const float* values, const int32_t* plan, int64_t nonzeros, const float* bias, int relu,
                             float* y, int threads);
FT_API const char* ft_linear_backward(const freetickets::GivenLayer* layer, int64_t samples, const float* x,
                                      const float* y, const float* dy, const float* values, const int32_t* plan,
                                      int64_t nonzeros, float* dx, float* dvalues, float* dbias, int threads);

// The forward pass in two steps, for weights that no longer change: their entries (8 bytes each) suit
// maps of one size, for any number of groups. Then y = relu?(convolution + bias + residual), where the
// convolution is that of relu?(x * factor + shift): see `Fusion`.
FT_API const char* ft_prepare(const freetickets::GivenLayer* layer, const freetickets::GivenMaps* maps,
                              const float* values, const int32_t* plan, int64_t nonzeros,
                              freetickets::Entry* entries, int threads);
FT_API const char* ft_forward_fused(const freetickets::GivenLayer* layer,
                                    const freetickets::GivenMaps* maps, const float* x,
                                    const freetickets::Entry* entries, const int32_t* plan,
                                    int64_t nonzeros, const float* factor, const float* shift,
                                    int rectify_input, const float* bias, const float* residual,
                                    int rectify, float* y, int threads);

// Winograd's way, for convolutions by 3x3 with stride 1 and a padding of 2 at the most, with several lanes. The same
// functions multiply the weights of a 1x1 convolution without padding, at any stride, where nothing is transformed; it has
// no gradient of weights here.
// Weights (outputs, inputs, 3, 3) are transformed first: for the forward pass, or (`transposed`) for the
// input gradient, which is the forward pass of a layer whose inputs and outputs have changed places and whose
// padding is 2 less the padding. The size is in floats; 0: there is no such layer.
FT_API int64_t ft_winograd_size(const freetickets::GivenLayer* layer, int transposed);
FT_API const char* ft_winograd_weights(const freetickets::GivenLayer* layer, const float* weight, int transposed,
                                       float* weights, int threads);
FT_API const char* ft_winograd_forward(const freetickets::GivenLayer* layer, const freetickets::GivenMaps* maps,
                                       const float* x, const float* weights, const float* factor,
                                       const float* shift, int rectify_input, const float* bias,
                                       const float* residual, int rectify, float* y, int threads);
FT_API const char* ft_winograd_gradient(const freetickets::GivenLayer* layer, const freetickets::GivenMaps* maps,
                                        const float* x, const float* dy, float* dw, int threads);

// BatchNorm, with ReLU or without.
FT_API const char* ft_normalize(const freetickets::GivenNorm* n, const float* x, const float* weight,
                                const float* bias, float eps, int relu, float* y, float* mean,
                                float* variance, int threads);
FT_API const char* ft_scale(const freetickets::GivenNorm* n, const float* x, const float* weight,
                            const float* bias, const float* mean, const float* variance, float eps,
                            int relu, float* y, int threads);
FT_API const char* ft_normalize_backward(const freetickets::GivenNorm* n, const float* x, const float* dy,
                                         const float* weight, const float* bias, const float* mean,
                                         const float* variance, float eps, int relu, int training,
                                         float* dx, float* dweight, float* dbias, int threads);

// Max-pooling by windows of up to 256 numbers that lie side by side, and its gradient; the places say which number of
// a window is the largest, a byte for each result.
FT_API const char* ft_max_pool(const freetickets::GivenPool* pool, const float* x, float* y, uint8_t* places,
                               int threads);
FT_API const char* ft_max_pool_backward(const freetickets::GivenPool* pool, const uint8_t* places, const float* dy,
                                        float* dx, int threads);

// PyTorch's layout (sample, channel, row, column) to that of `Maps`, and back.
FT_API const char* ft_to_groups(const freetickets::GivenNorm* n, const float* x, float* y, int threads);
FT_API const char* ft_from_groups(const freetickets::GivenNorm* n, const float* x, float* y, int threads);

// Blocks of images with a border of their neighbours' positions, zero beyond the image: what is within is
// relu?(x * factor + shift), channel by channel, or x itself if factor and shift are null.
FT_API const char* ft_halo(const freetickets::GivenHalo* halo, const float* x, const float* factor, const float* shift,
                           int rectify, float* y, int threads);

// The active weights of a dense weight of `size` numbers, and how many of its other numbers are not zero; and
// the dense weight that has these numbers in these places, and zeros elsewhere. Places are 32-bit integers, each
// one once.
FT_API const char* ft_take(const float* weight, int64_t size, const int32_t* places, int64_t count, float* values,
                           int64_t* others, int threads);
FT_API const char* ft_put(const float* values, const int32_t* places, int64_t count, float* weight, int64_t size,
                          int threads);
