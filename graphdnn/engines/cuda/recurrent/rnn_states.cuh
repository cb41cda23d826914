// The state of a pseudo-layer (a layer in one direction), a sequence and a unit.

template <class T> __device__ __forceinline__ T& state_of(
    T* states, const long long (&stride)[3], long long pseudo, long long b, long long unit
) {
    return states[pseudo * stride[0] + b * stride[1] + unit * stride[2]];
}
