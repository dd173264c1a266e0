// One vector of floats, as wide as the instruction set that this file is compiled for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define FT_LANES 16
#elif defined(__AVX2__)
#define FT_LANES 8
#else
#define FT_LANES 4
#endif

#define FT_INLINE inline __attribute__((always_inline))

namespace FT_NAMESPACE {

constexpr int LANES = FT_LANES;
constexpr int VECTOR_BYTES = LANES * 4;

typedef float Vector __attribute__((vector_size(FT_LANES * 4), aligned(FT_LANES * 4), may_alias));
typedef float LooseVector __attribute__((vector_size(FT_LANES * 4), aligned(4), may_alias));

FT_INLINE Vector load(const void* p) { return *static_cast<const Vector*>(p); }
FT_INLINE Vector load_loose(const void* p) { return *static_cast<const LooseVector*>(p); }
FT_INLINE void store(void* p, Vector v) { *static_cast<Vector*>(p) = v; }
FT_INLINE void store_loose(void* p, Vector v) { *static_cast<LooseVector*>(p) = v; }
template <size_t... I>
FT_INLINE Vector fill_lanes(float x, std::index_sequence<I...>) {
  return Vector{((void)I, x)...};
}
FT_INLINE Vector fill(float x) { return fill_lanes(x, std::make_index_sequence<LANES>{}); }

// A float that lies in an integer register, in all lanes.
FT_INLINE Vector fill_bits(int32_t bits) {
#if FT_LANES == 8
  return (Vector)_mm256_broadcastss_ps(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
#else
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return fill(x);
#endif
}

// ReLU; a NaN stays one: whoever watches the loss must see it.
FT_INLINE Vector positive(Vector v) { return Vector{} > v ? Vector{} : v; }

// ---- the sums of four vectors, in a tree: pairs of lanes, then four lanes, then the whole.

#if defined(__AVX2__)

typedef __m256 Pairs;

FT_INLINE __m256 narrow(Vector v) {
#if FT_LANES == 16
  return (__m256)(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15));
#else
  return (__m256)v;
#endif
}

#if FT_LANES == 16
FT_INLINE Pairs add_pairs(Vector a, Vector b) { return _mm256_hadd_ps(narrow(a), narrow(b)); }
#endif
FT_INLINE Pairs add_pairs(Pairs a, Pairs b) { return _mm256_hadd_ps(a, b); }

// Adds four sums to `out`, or to as many of its floats as there are.
FT_INLINE void add_four(Pairs quads, float* out, int count) {
  const __m128 sums = _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps(quads, 1));
  if (count >= 4) {
    _mm_storeu_ps(out, _mm_add_ps(_mm_loadu_ps(out), sums));
  } else {
    const __m128i mask = _mm_cmpgt_epi32(_mm_set1_epi32(count), _mm_setr_epi32(0, 1, 2, 3));
    _mm_maskstore_ps(out, mask, _mm_add_ps(_mm_maskload_ps(out, mask), sums));
  }
}

#else

struct Pairs {
  float sums[4];
  int count;
};

FT_INLINE float sum(Vector v) { return (v[0] + v[1]) + (v[2] + v[3]); }
FT_INLINE Pairs add_pairs(Vector a, Vector b) { return {{sum(a), sum(b), 0, 0}, 2}; }
FT_INLINE Pairs add_pairs(const Pairs& a, const Pairs& b) {
  return {{a.sums[0], a.sums[1], b.sums[0], b.sums[1]}, 4};
}
FT_INLINE void add_four(const Pairs& quads, float* out, int count) {
  for (int i = 0; i < 4 && i < count; ++i) out[i] += quads.sums[i];
}

#endif

}  // namespace FT_NAMESPACE
