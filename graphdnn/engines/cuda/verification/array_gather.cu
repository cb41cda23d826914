// Some slices of an array along one of its axes, one after another: bytes [outer, extent, inner] as they lie in memory,
// of which [outer, count, inner] are written.

struct Params {
    const unsigned char* from;
    unsigned char* into;
    const long long* kept;
    long long outer;
    long long extent;
    long long inner;
    long long count;
};

extern "C" __global__ void __launch_bounds__(256) array_gather(const __grid_constant__ Params p) {
    const long long whole = p.outer * p.count * p.inner, step = (long long)gridDim.x * 256;
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < whole; i += step) {
        const long long row = i / p.inner, place = i - row * p.inner, outer = row / p.count;
        p.into[i] = p.from[(outer * p.extent + p.kept[row - outer * p.count]) * p.inner + place];
    }
}
