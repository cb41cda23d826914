// One time step of one unit, forward and backward: from the input's and the state's parts of the gates to the output.

enum { RELU, TANH, LSTM, GRU };

constexpr int RESERVE_REGISTERS = RESERVE_VALUES > 0 ? RESERVE_VALUES : 1;  // an array has one element or more

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

// h and c: the previous state, replaced by the next one. reserve: the reserve values, which the gradient reads.
__device__ __forceinline__ void cell_step(
    const Compute (&input)[GATES], const Compute (&state)[GATES], Compute& h, Compute& c,
    Compute (&reserve)[RESERVE_REGISTERS]
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
        reserve[0] = in;
        reserve[1] = forget;
        reserve[2] = candidate;
        reserve[3] = out;
        reserve[4] = c;
    } else {
        const Compute reset = sigmoid(input[0] + state[0]), update = sigmoid(input[1] + state[1]);
        const Compute candidate = tanh_of(input[2] + reset * state[2]);
        h = (Compute(1) - update) * candidate + update * h;
        reserve[0] = reset;
        reserve[1] = update;
        reserve[2] = candidate;
        reserve[3] = state[2];
    }
}

// dh: the gradient of the output; dc: the gradient of the cell, replaced by the gradient of the previous cell. `output` belongs
// to this step, h and c to the previous one. Computes the gate gradients, and returns the part of the gradient of the previous
// h that does not pass through the recurrent matrix.
__device__ __forceinline__ Compute cell_gradient(
    Compute dh, Compute& dc, Compute output, Compute h, Compute c, const Compute (&reserve)[RESERVE_REGISTERS],
    Compute (&gradient)[GATE_GRADIENTS]
) {
    constexpr Compute one = Compute(1);
    if constexpr (CELL == RELU) {
        gradient[0] = output > Compute(0) ? dh : Compute(0);
        return Compute(0);
    } else if constexpr (CELL == TANH) {
        gradient[0] = dh * (one - output * output);
        return Compute(0);
    } else if constexpr (CELL == LSTM) {
        const Compute in = reserve[0], forget = reserve[1], candidate = reserve[2], out = reserve[3];
        const Compute tanh_c = tanh_of(reserve[4]);
        const Compute all = dc + dh * out * (one - tanh_c * tanh_c);
        gradient[0] = all * candidate * in * (one - in);
        gradient[1] = all * c * forget * (one - forget);
        gradient[2] = all * in * (one - candidate * candidate);
        gradient[3] = dh * tanh_c * out * (one - out);
        dc = all * forget;
        return Compute(0);
    } else {
        const Compute reset = reserve[0], update = reserve[1], candidate = reserve[2];
        const Compute dfresh = dh * (one - update) * (one - candidate * candidate);
        gradient[0] = dfresh * reserve[3] * reset * (one - reset);
        gradient[1] = dh * (h - candidate) * update * (one - update);
        gradient[2] = dfresh;
        gradient[3] = dfresh * reset;
        return dh * update;
    }
}
