// What this machine can do at best: how fast a kernel could be if only its arithmetic counted.
#pragma once

#include "vector.h"

namespace FT_NAMESPACE {

constexpr int CHAINS = 12;  // as many sums as hide how long an addition takes

template <size_t... I>
int64_t bound_of(bool from_cache, int64_t rounds, std::index_sequence<I...>) {
  constexpr int TIMES = 16;
  alignas(64) float factors[TIMES * CHAINS * LANES] = {};
  Vector sums[CHAINS] = {}, factor = fill(0.5f), other = fill(0.25f);
  for (int64_t round = 0; round < rounds; ++round) {
    const float* from = factors;
    for (int t = 0; t < TIMES; ++t, from += CHAINS * LANES) {
      asm volatile("" : "+r"(from), "+x"(other));  // so that nothing is computed once for all
      if (from_cache)
        ((sums[I] += factor * load(from + I * LANES)), ...);
      else
        ((sums[I] += factor * other), ...);
    }
  }
  Vector total{};
  ((total += sums[I]), ...);
  asm volatile("" : : "x"(total));
  return rounds * TIMES * CHAINS * LANES * 2;
}

// Multiplies and adds in registers, or with factors that come from the first-level cache; returns the operations.
inline int64_t bound(bool from_cache, int64_t rounds) {
  return bound_of(from_cache, rounds, std::make_index_sequence<CHAINS>{});
}

}  // namespace FT_NAMESPACE
