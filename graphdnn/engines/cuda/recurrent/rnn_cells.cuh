// One time step of one unit, forward and backward: from the input's and the state's parts of the gates to the output.

enum { RELU, TANH, LSTM, GRU };

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float tanh_of(float x) { return tanhf(x); }
__device__ __forceinline__ double tanh_of(double x) { return tanh(x); }
__device__ __forceinline__ Compute sigmoid(Compute x) {
#ifdef FAST  // for 16-bit results: errors of a few units in the last place of a float
    return __fdividef(1.0f, 1.0f + __expf(-x));
#else
    return Compute(1) / (Compute(1) + exponential(-x));
#endif
}

// h and c: the previous state, replaced by the next one. kept: the reserve values, which the gradient reads.
__device__ __forceinline__ void cell_step(
    const Compute (&input)[GATES], const Compute (&state)[GATES], Compute& h, Compute& c, Compute (&kept)[KEPT > 0 ? KEPT : 1]
) {
    if constexpr (CELL == RELU) {
        const Compute total = input[0] + state[0];
        h = total < Compute(0) ? Compute(0) : total;  // NaN stays
    } else if constexpr (CELL == TANH) {
        h = tanh_of(input[0] + state[0]);
    } else if constexpr (CELL == LSTM) {
        const Compute in = sigmoid(input[0] + state[0]), forget = sigmoid(input[1] + state[1]);
        const Compute candidate = tanh_of(input[2] + state[2]), out = sigmoid(input[3] + state[3]);
        c = forget * c + in * candidate;
        h = out * tanh_of(c);
        kept[0] = in;
        kept[1] = forget;
        kept[2] = candidate;
        kept[3] = out;
        kept[4] = c;
    } else {
        const Compute reset = sigmoid(input[0] + state[0]), update = sigmoid(input[1] + state[1]);
        const Compute candidate = tanh_of(input[2] + reset * state[2]);
        h = (Compute(1) - update) * candidate + update * h;
        kept[0] = reset;
        kept[1] = update;
        kept[2] = candidate;
        kept[3] = state[2];
    }
}

// dh: the gradient of the output; dc: the gradient of the cell, replaced by the gradient of the previous cell. `output` belongs
// to this step, h and c to the previous one. Computes the gate gradients, and returns the part of the gradient of the previous
// h that does not pass through the recurrent matrix.
__device__ __forceinline__ Compute cell_gradient(
    Compute dh, Compute& dc, Compute output, Compute h, Compute c, const Compute (&kept)[KEPT > 0 ? KEPT : 1],
    Compute (&gradient)[KEPT_GRADIENTS]
) {
    constexpr Compute one = Compute(1);
    if constexpr (CELL == RELU) {
        gradient[0] = output > Compute(0) ? dh : Compute(0);
        return Compute(0);
    } else if constexpr (CELL == TANH) {
        gradient[0] = dh * (one - output * output);
        return Compute(0);
    } else if constexpr (CELL == LSTM) {
        const Compute in = kept[0], forget = kept[1], candidate = kept[2], out = kept[3], tanh_c = tanh_of(kept[4]);
        const Compute all = dc + dh * out * (one - tanh_c * tanh_c);
        gradient[0] = all * candidate * in * (one - in);
        gradient[1] = all * c * forget * (one - forget);
        gradient[2] = all * in * (one - candidate * candidate);
        gradient[3] = dh * tanh_c * out * (one - out);
        dc = all * forget;
        return Compute(0);
    } else {
        const Compute reset = kept[0], update = kept[1], candidate = kept[2];
        const Compute dfresh = dh * (one - update) * (one - candidate * candidate);
        gradient[0] = dfresh * kept[3] * reset * (one - reset);
        gradient[1] = dh * (h - candidate) * update * (one - update);
        gradient[2] = dfresh;
        gradient[3] = dfresh * reset;
        return dh * update;
    }
}
