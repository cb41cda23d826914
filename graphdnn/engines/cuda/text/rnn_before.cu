// The state that each step of a direction began with, for all steps: [rows, hidden].

extern "C" __global__ void __launch_bounds__(THREADS) rnn_before(const __grid_constant__ Params p) {
    const int hidden = (int)p.hidden;
    for (int t = (int)blockIdx.x; t < (int)p.steps; t += (int)gridDim.x)
        for (int i = (int)threadIdx.x; i < sequences(p, t) * hidden; i += THREADS) {
            const int b = i / hidden, u = i % hidden, before = row_before(p, t, b, p.back);
            To value = narrow<To>(0.0f);
            if (before >= 0) value = narrow<To>(widen<Compute>(p.out[p.out_at + before * p.out_stride[0] + (p.first + u) * p.out_stride[1]]));
            else if (p.hx) value = narrow<To>(widen<Compute>(p.hx[p.pseudo * p.hx_stride[0] + b * p.hx_stride[1] + u * p.hx_stride[2]]));
            p.to[(long long)first_row(p, t) * hidden + i] = value;
        }
}
