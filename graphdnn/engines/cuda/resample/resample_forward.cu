// resample_forward computes resampling for every mode, window and stride, one tap at a time.
//
// Tile:    WIDTH adjacent outputs for a thread.
// Memory:  x is read in accesses of INPUT_WIDTH elements; y is written in vectors of WIDTH.
// Threads: one thread for WIDTH outputs; the grid strides over y.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.
//   WIDTH, INPUT_WIDTH: elements of a store and of a load; INPUT_WIDTH divides WIDTH.
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
        Compute result[WIDTH];
        int place[WIDTH];
        #pragma unroll
        for (int e = 0; e < WIDTH; e += INPUT_WIDTH) {
            int here[RANK];
            #pragma unroll
            for (int j = 0; j < RANK; ++j) here[j] = at[j];
            here[RANK - 1] += e;
            Compute some[INPUT_WIDTH];
            int places[INPUT_WIDTH];
            resample<INPUT_WIDTH>(p, here, some, places);
            #pragma unroll
            for (int k = 0; k < INPUT_WIDTH; ++k) {
                result[e + k] = some[k];
                if constexpr (MODE == MAXIMUM) place[e + k] = places[k];
            }
        }
        epilogue(p, at, result, place);
    }
}
