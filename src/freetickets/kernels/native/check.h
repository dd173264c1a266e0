// Looks at what Python gives before anything is computed with it. Numbers that the kernels can't work
// with would have them read and write beyond the memory, or end the process.
#pragma once

#include "api.h"
#include "kernels.h"
#include "layer.h"

// No exceptions: to throw one takes memory, and where there is none, the process ends.
#define FT_NEED(fine, reason) \
  if (!(fine)) return reason
#define FT_TRY(call) \
  if (const ::freetickets::Reason reason_ = (call)) return reason_

namespace freetickets {

// The numbers in the form that the kernels take, if they can.
Reason check(const GivenLayer* given, Layer& layer);
Reason check(const GivenNorm* given, Norm& norm);
Reason check(const GivenHalo* given, Halo& halo);
Reason check_threads(int given, int& threads);
Reason check_nonzeros(const Layer& layer, int64_t nonzeros);

// Refuses a plan that was made for another layer, or memory that holds none.
Reason check_plan(const int32_t* plan, const Layer& layer, int64_t nonzeros);

// What the functions share that compute with a layer.
struct Call {
  Layer layer;
  Maps maps;
  int threads;
};

// The same for Winograd's way.
Reason check_winograd(const GivenLayer* given, Layer& layer);
Reason check_winograd(const Kernels& kernels, const GivenLayer* layer, const GivenMaps* maps, int threads,
                      Call& call);

enum class Lanes { ONE_OR_MORE, SEVERAL };
enum class Groups { NONE_OR_MORE, SOME };

Reason check(const Kernels& kernels, const GivenLayer* layer, const GivenMaps* maps, const int32_t* plan,
             int64_t nonzeros, int threads, Lanes lanes, Groups groups, Call& call);

// What the functions share that normalize.
struct NormCall {
  Norm norm;
  int threads;
};

Reason check(const Kernels& kernels, const GivenNorm* norm, int threads, NormCall& call);

// The same for what pools.
struct PoolCall {
  Pool pool;
  int threads;
};

Reason check(const Kernels& kernels, const GivenPool* pool, int threads, PoolCall& call);

// Memory for the places of a pool: whole vectors of bytes.
inline Reason check_places(int lanes, const uint8_t* memory) {
  FT_NEED(memory != nullptr, "there is no memory for places");
  FT_NEED(reinterpret_cast<uintptr_t>(memory) % lanes == 0, "places must be aligned to a vector's lanes");
  return nullptr;
}

// Memory for maps: with one lane it may lie anywhere.
inline Reason check_maps(int lanes, const float* memory) {
  FT_NEED(memory != nullptr, "there is no memory for maps");
  FT_NEED(lanes == 1 || reinterpret_cast<uintptr_t>(memory) % 64 == 0, "maps must be aligned to 64 bytes");
  return nullptr;
}

// Memory for other numbers: there must be some if they are any.
inline Reason check_numbers(int64_t count, const void* memory) {
  FT_NEED(memory != nullptr || count == 0, "there is no memory for values, places, entries or statistics");
  return nullptr;
}

}  // namespace freetickets
