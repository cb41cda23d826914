// resample_forward computes resampling for every mode, window and stride, one tap at a time.
//
// Tile:    VEC_WIDTH adjacent outputs for a thread.
// Memory:  x is read in accesses of LOAD_VEC_WIDTH elements; y is written in vectors of VEC_WIDTH.
// Threads: one thread for VEC_WIDTH outputs; the grid strides over y.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   VEC_WIDTH, LOAD_VEC_WIDTH: elements of a store and of a load; LOAD_VEC_WIDTH divides VEC_WIDTH.
//   MODE, PADDING: enumerators of resample_axis.cuh; SPATIAL: spatial axes, 1 to 3; CHANNELS_LAST: 1 for channels-last tensors.
//
// Variants (from the generator): RESAMPLE_WINDOW: 0: maxima; 1: averages; 2: linear interpolation.

#include "pdl.cuh"
#include "resample_axis.cuh"
#include "resample_coordinates.cuh"
#if RESAMPLE_WINDOW == 0
#include "resample_maximum.cuh"
#elif RESAMPLE_WINDOW == 1
#include "resample_average.cuh"
#else
#include "resample_linear.cuh"
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) resample_forward(const __grid_constant__ Params p) {
    pdl_trigger();
    pdl_wait();
    for (Count i = (Count)blockIdx.x * THREADS + threadIdx.x; i < (Count)p.count; i += (Count)gridDim.x * THREADS) {
        int at[RANK];
        coordinates(i, p, at);
        Compute result[VEC_WIDTH];
        int place[VEC_WIDTH];
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; e += LOAD_VEC_WIDTH) {
            int here[RANK];
            #pragma unroll
            for (int j = 0; j < RANK; ++j) here[j] = at[j];
            here[RANK - 1] += e;
            Compute some[LOAD_VEC_WIDTH];
            int places[LOAD_VEC_WIDTH];
            resample<LOAD_VEC_WIDTH>(p, here, some, places);
            #pragma unroll
            for (int k = 0; k < LOAD_VEC_WIDTH; ++k) {
                result[e + k] = some[k];
                if constexpr (MODE == MAXIMUM) place[e + k] = places[k];
            }
        }
        epilogue(p, at, result, place);
    }
}
