// What stands between the convolutions, in their layout: BatchNorm and ReLU.
#pragma once

#include <algorithm>
#include <cmath>

#include "check.h"
#include "layer.h"
#include "parallel.h"
#include "vector.h"

namespace FT_NAMESPACE {

using freetickets::Norm;
using freetickets::Reason;
using freetickets::scratch;

// Which lanes of a group hold samples, as factors.
struct Mask {
  const float* factors;
  int lanes;

  // For the i-th number of a part. (A division for each vector would take longer than all else.)
  FT_INLINE Vector at(int64_t i) const { return load(lanes == LANES ? factors : factors + i % lanes); }
};

// Calls `body(part, channel, floats, first float, mask)` for all parts: a part is the positions of one
// channel in one group, and the mask tells the lanes of the last group that hold samples. A thread has
// whole groups if there are enough of them: they are what it has in its caches.
template <class Body>
FT_INLINE void for_parts(const Norm& n, int threads, Body&& body) {
  const int64_t parts = int64_t{n.groups} * n.channels, floats = int64_t{n.positions} * n.lanes;
  freetickets::parallel(parts, std::max(1, n.channels / 8), threads, [&](int64_t begin, int64_t end) {
    alignas(64) float all[16], some[16];
    const int valid = n.batch - (n.groups - 1) * n.lanes;
    for (int i = 0; i < n.lanes; ++i) all[i] = 1.0f, some[i] = i < valid ? 1.0f : 0.0f;
    for (int64_t p = begin; p < end; ++p)
      body(p, int(p % n.channels), floats, p * floats, Mask{p / n.channels + 1 == n.groups ? some : all, n.lanes});
  });
}

// How many numbers a part of a group has.
inline double size_of(const Norm& n, int64_t group) {
  return double(group + 1 == n.groups ? n.batch - group * n.lanes : n.lanes) * n.positions;
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

// y = relu?((x - mean) / sqrt(variance + eps) * weight + bias).
inline void scale(const Norm& n, const float* x, const float* weight, const float* bias, const float* mean,
                  const float* variance, float eps, int relu, float* y, int threads) {
  for_parts(n, threads, [&](int64_t, int c, int64_t floats, int64_t at, const Mask& mask) {
    const float factor = weight[c] / std::sqrt(variance[c] + eps);
    const Vector a = fill(factor), b = fill(bias[c] - mean[c] * factor);
    for (int64_t i = 0; i < floats; i += LANES) {
      Vector v = load(x + at + i) * a + b;
      if (relu) v = positive(v);
      store(y + at + i, v * mask.at(i));
    }
  });
}

// The same with the mean and the variance of the batch itself. Each part has its sum, and its squares around
// its own mean: that is exact, however far the mean is from zero.
inline Reason normalize(const Norm& n, const float* x, const float* weight, const float* bias, float eps, int relu,
                        float* y, float* mean, float* variance, int threads) {
  auto* sums = reinterpret_cast<double*>(scratch(freetickets::slots::SUMS, size_t(n.groups) * n.channels * 4));
  FT_NEED(sums != nullptr, FT_OUT_OF_MEMORY);
  for_parts(n, threads, [&](int64_t p, int, int64_t floats, int64_t at, const Mask& mask) {
    const double sum =
        sum_of(floats, [&](int64_t i) { return load(x + at + i) * mask.at(i); });
    const Vector m = fill(static_cast<float>(sum / size_of(n, p / n.channels)));
    sums[2 * p] = sum;
    sums[2 * p + 1] = sum_of(floats, [&](int64_t i) {
      const Vector d = (load(x + at + i) - m) * mask.at(i);
      return d * d;
    });
  });
  const double count = double(n.batch) * n.positions;
  for (int c = 0; c < n.channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t g = 0; g < n.groups; ++g) sum += sums[2 * (g * n.channels + c)];
    for (int64_t g = 0; g < n.groups; ++g) {
      const double* part = sums + 2 * (g * n.channels + c);
      // The part's own mean, as it was rounded.
      const double size = size_of(n, g), own = double(float(part[0] / size)), far = own - sum / count;
      squares += part[1] + 2 * far * (part[0] - size * own) + size * far * far;
    }
    mean[c] = static_cast<float>(sum / count);
    variance[c] = static_cast<float>(squares / count);
  }
  scale(n, x, weight, bias, mean, variance, eps, relu, y, threads);
  return nullptr;
}

// The gradients of `normalize` (or of `scale`, if not `training`: its mean does not depend on x).
inline Reason normalize_backward(const Norm& n, const float* x, const float* dy, const float* weight,
                                 const float* bias, const float* mean, const float* variance, float eps, int relu,
                                 int training, float* dx, float* dweight, float* dbias, int threads) {
  auto* sums = reinterpret_cast<double*>(scratch(freetickets::slots::SUMS, size_t(n.groups) * n.channels * 4));
  FT_NEED(sums != nullptr, FT_OUT_OF_MEMORY);
  // What is left of a gradient behind ReLU.
  const auto gradient_of = [=](int c) {
    const float factor = weight[c] / std::sqrt(variance[c] + eps);
    const Vector a = fill(factor), b = fill(bias[c] - mean[c] * factor);
    return [=](int64_t i, Vector mask) __attribute__((always_inline)) {
      const Vector g = load(dy + i) * mask;
      return relu ? (load(x + i) * a + b <= 0.0f ? Vector{} : g) : g;
    };
  };
  for_parts(n, threads, [&](int64_t p, int c, int64_t floats, int64_t at, const Mask& mask) {
    const auto gradient = gradient_of(c);
    const Vector m = fill(mean[c]);
    sums[2 * p] = sums[2 * p + 1] = 0;
    for (int64_t start = 0; start < floats; start += PIECE) {
      Vector sum[2] = {}, product[2] = {};  // two chains of each: one would wait for its own additions
      const auto add = [&](int64_t i, int chain) __attribute__((always_inline)) {
        const Vector g = gradient(at + i, mask.at(i));
        sum[chain] += g, product[chain] += g * (load(x + at + i) - m);
      };
      const int64_t end = std::min(floats, start + PIECE);
      int64_t i = start;
      for (; i + 2 * LANES <= end; i += 2 * LANES) add(i, 0), add(i + LANES, 1);
      if (i < end) add(i, 0);
      sums[2 * p] += total(sum[0] + sum[1]), sums[2 * p + 1] += total(product[0] + product[1]);
    }
  });
  const double count = double(n.batch) * n.positions;
  for (int c = 0; c < n.channels; ++c) {
    double sum = 0, product = 0;
    for (int64_t g = 0; g < n.groups; ++g) {
      sum += sums[2 * (g * n.channels + c)];
      product += sums[2 * (g * n.channels + c) + 1];
    }
    const float rstd = 1.0f / std::sqrt(variance[c] + eps);
    dbias[c] = static_cast<float>(sum);
    dweight[c] = static_cast<float>(product * rstd);
    // For the second pass, in the place of the first group's sums.
    sums[2 * c] = training ? sum / count : 0;
    sums[2 * c + 1] = training ? product / count * rstd * rstd : 0;
  }
  for_parts(n, threads, [&](int64_t, int c, int64_t floats, int64_t at, const Mask& mask) {
    const auto gradient = gradient_of(c);
    const Vector a = fill(weight[c] / std::sqrt(variance[c] + eps)), m = fill(mean[c]);
    const Vector mean_gradient = fill(float(sums[2 * c])), slope = fill(float(sums[2 * c + 1]));
    for (int64_t i = 0; i < floats; i += LANES) {
      const Vector g = gradient(at + i, mask.at(i));
      const Vector d = a * (g - mean_gradient - (load(x + at + i) - m) * slope);
      store(dx + at + i, d * mask.at(i));
    }
  });
  return nullptr;
}

}  // namespace FT_NAMESPACE
