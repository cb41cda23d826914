// rnn_fill initializes the memory through which CTAs of rnn_persistent exchange states: the first rows of each layer hold the
// initial states (or 0), all other words hold ABSENT until a CTA writes them.
//
// Tile:    16 bytes for a thread.
// Memory:  [layer][initial rows, then rows of all steps][direction][unit], 16 bits each.
// Threads: threads are independent; the grid strides over the memory.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32. ABSENT (rnn_exchange.cuh): a word that no pair of states has.

#include "rnn_states.cuh"
#include "rnn_exchange.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 4) rnn_fill(const __grid_constant__ Params p) {
    const long long width = p.directions * p.hidden, layer_words = (p.batch + p.rows) * width / 2;
    const long long all = p.layers * layer_words, first_words = p.batch * width / 2;
    unsigned int* words = (unsigned int*)p.shared;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < all / 4; i += (long long)gridDim.x * THREADS) {
        const long long layer = i * 4 / layer_words, at = i * 4 - layer * layer_words;
        uint4 value = make_uint4(ABSENT, ABSENT, ABSENT, ABSENT);
        if (at < first_words) {
            Vec<State, 8> states;
            #pragma unroll
            for (int e = 0; e < 8; ++e) {
                const long long element = at * 2 + e, b = element / width, column = element % width;
                const long long pseudo = layer * p.directions + column / p.hidden, unit = column % p.hidden;
                float h = 0.0f;
                if (p.hx) h = widen<float>(state_of(p.hx, p.hx_stride, pseudo, b, unit));
                states[e] = narrow<State>(h);
            }
            value = *(const uint4*)&states;
        }
        *(uint4*)(words + i * 4) = value;
    }
}
