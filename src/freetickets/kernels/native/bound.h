// What this machine can do at best: how fast a kernel could be if only its arithmetic counted.
#pragma once

#include "vector.h"

namespace FT_NAMESPACE {

// Multiplies and adds in registers, or with factors that come from the first-level cache; returns the operations.
inline int64_t bound(bool from_cache, int64_t rounds) {
  constexpr int CHAINS = 12, VECTORS = 16 * CHAINS;  // as many sums as hide how long an addition takes
  alignas(64) float factors[VECTORS * LANES] = {};
  Vector sums[CHAINS] = {}, factor = fill(0.5f), other = fill(0.25f);
  for (int64_t round = 0; round < rounds; ++round) {
    for (int v = 0; v < VECTORS; v += CHAINS) {
      const float* from = factors + v * LANES;
      asm volatile("" : "+r"(from), "+m"(factors));
      for (int i = 0; i < CHAINS; ++i) sums[i] += factor * (from_cache ? load(from + i * LANES) : other);
    }
  }
  for (int i = 0; i < CHAINS; ++i) asm volatile("" : : "m"(sums[i]));
  return rounds * VECTORS * LANES * 2;
}

}  // namespace FT_NAMESPACE
