// What stands between the convolutions, in their layout: BatchNorm and ReLU.
#pragma once

#include <cmath>

#include "layer.h"
#include "parallel.h"
#include "vector.h"

namespace FT_NAMESPACE {

using freetickets::Norm;

// Calls `body(floats, first float, mask)` for the parts of a channel: a part is the positions of one
// group, and the mask tells the lanes of the last group that hold samples.
template <class Body>
FT_INLINE void for_groups(const Norm& n, int channel, Body&& body) {
  alignas(64) float all[16], some[16];
  const int valid = n.batch - (n.groups - 1) * n.lanes;
  for (int i = 0; i < n.lanes; ++i) all[i] = 1.0f, some[i] = i < valid ? 1.0f : 0.0f;
  const int64_t part = int64_t{n.positions} * n.lanes;
  for (int g = 0; g < n.groups; ++g)
    body(part, (int64_t{g} * n.channels + channel) * part, g + 1 == n.groups ? some : all);
}

FT_INLINE double total(Vector v) {
  double sum = 0;
  for (int i = 0; i < LANES; ++i) sum += v[i];
  return sum;
}

// Sums in pieces: single precision loses little within a piece, and the pieces add up in double.
constexpr int64_t PIECE = 4096;

template <class Term>
FT_INLINE double sum_of(int64_t floats, Term&& term) {
  double sum = 0;
  for (int64_t start = 0; start < floats; start += PIECE) {
    const int64_t end = start + PIECE < floats ? start + PIECE : floats;
    Vector a{}, b{};
    int64_t i = start;
    for (; i + 2 * LANES <= end; i += 2 * LANES) a += term(i), b += term(i + LANES);
    for (; i < end; i += LANES) a += term(i);
    sum += total(a + b);
  }
  return sum;
}

// y = relu?((x - mean) / sqrt(variance + eps) * weight + bias) for the channels first..last.
inline void scale_channels(const Norm& n, const float* x, const float* weight, const float* bias,
                           const float* mean, const float* variance, float eps, int relu, float* y, int first,
                           int last) {
  for (int c = first; c < last; ++c) {
    const float factor = weight[c] / std::sqrt(variance[c] + eps);
    const Vector a = fill(factor), b = fill(bias[c] - mean[c] * factor);
    for_groups(n, c, [&](int64_t floats, int64_t at, const float* mask) {
      for (int64_t i = 0; i < floats; i += LANES) {
        Vector v = load(x + at + i) * a + b;
        if (relu) v = positive(v);
        store(y + at + i, v * load(mask + i % n.lanes));
      }
    });
  }
}

// The same with the mean and the variance of the batch itself.
inline void normalize(const Norm& n, const float* x, const float* weight, const float* bias, float eps, int relu,
               float* y, float* mean, float* variance, int threads) {
  const double count = double(n.batch) * n.positions;
  freetickets::parallel(n.channels, 1, threads, [&](int64_t begin, int64_t end) {
    for (int c = int(begin); c < int(end); ++c) {
      double sum = 0, squares = 0;
      for_groups(n, c, [&](int64_t floats, int64_t at, const float* mask) {
        sum += sum_of(floats, [&](int64_t i) { return load(x + at + i) * load(mask + i % n.lanes); });
      });
      const Vector m = fill(static_cast<float>(sum / count));
      for_groups(n, c, [&](int64_t floats, int64_t at, const float* mask) {
        squares += sum_of(floats, [&](int64_t i) {
          const Vector d = (load(x + at + i) - m) * load(mask + i % n.lanes);
          return d * d;
        });
      });
      mean[c] = static_cast<float>(sum / count);
      variance[c] = static_cast<float>(squares / count);
    }
    scale_channels(n, x, weight, bias, mean, variance, eps, relu, y, int(begin), int(end));
  });
}

inline void scale(const Norm& n, const float* x, const float* weight, const float* bias, const float* mean,
                  const float* variance, float eps, int relu, float* y, int threads) {
  freetickets::parallel(n.channels, 1, threads, [&](int64_t begin, int64_t end) {
    scale_channels(n, x, weight, bias, mean, variance, eps, relu, y, int(begin), int(end));
  });
}

// The gradients of `normalize` (or of `scale`, if not `training`: its mean does not depend on x).
inline void normalize_backward(const Norm& n, const float* x, const float* dy, const float* weight,
                        const float* bias, const float* mean, const float* variance, float eps, int relu,
                        int training, float* dx, float* dweight, float* dbias, int threads) {
  const double count = double(n.batch) * n.positions;
  freetickets::parallel(n.channels, 1, threads, [&](int64_t begin, int64_t end) {
    for (int c = int(begin); c < int(end); ++c) {
      const float rstd = 1.0f / std::sqrt(variance[c] + eps), factor = weight[c] * rstd;
      const Vector a = fill(factor), b = fill(bias[c] - mean[c] * factor), m = fill(mean[c]);
      const auto gradient = [&](int64_t i, const float* mask) __attribute__((always_inline)) {
        const Vector g = load(dy + i) * load(mask);
        return relu ? (load(x + i) * a + b <= 0.0f ? Vector{} : g) : g;
      };
      double sum = 0, product = 0;
      for_groups(n, c, [&](int64_t floats, int64_t at, const float* mask) {
        sum += sum_of(floats, [&](int64_t i) { return gradient(at + i, mask + i % n.lanes); });
        product += sum_of(floats, [&](int64_t i) {
          return gradient(at + i, mask + i % n.lanes) * (load(x + at + i) - m);
        });
      });
      dbias[c] = static_cast<float>(sum);
      dweight[c] = static_cast<float>(product * rstd);
      const Vector mean_gradient = fill(training ? float(sum / count) : 0.0f);
      const Vector slope = fill(training ? float(product / count * rstd * rstd) : 0.0f);
      for_groups(n, c, [&](int64_t floats, int64_t at, const float* mask) {
        for (int64_t i = 0; i < floats; i += LANES) {
          const Vector g = gradient(at + i, mask + i % n.lanes);
          const Vector d = a * (g - mean_gradient - (load(x + at + i) - m) * slope);
          store(dx + at + i, d * load(mask + i % n.lanes));
        }
      });
    }
  });
}

}  // namespace FT_NAMESPACE
