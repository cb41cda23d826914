// The CTC loss and its gradient, in logarithms, by the forward-backward algorithm. A position is a class of the label or a
// blank: position 2i + 1 is class i, even positions are blanks.
//
//   ctc_read:     the forward pass. read[n][t][position] = log probability of the label's prefix up to the position at step t.
//   ctc_fill:     initializes the gradients of all classes.
//   ctc_gradient: the backward pass, which adds the probabilities of all positions of a class.
//
// Tile:    one sequence for a CTA (ctc_read, ctc_gradient).
// Memory:  two rows of positions in shared memory, or in the workspace if they are too long.
// Threads: a thread for each position, with stride THREADS; a barrier ends every step.
//
// Required constants (from the generator):
//   THREADS: threads of a CTA, a multiple of 32.

__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }
__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ float log_above_1(float x) { return log1pf(x); }
__device__ __forceinline__ double log_above_1(double x) { return log1p(x); }

__device__ __forceinline__ Compute log_zero() { return Compute(-__uint_as_float(0x7f800000u)); }

// The logarithm of exp(a) + exp(b).
__device__ __forceinline__ Compute log_add(Compute a, Compute b) {
    const Compute difference = a - b;
    if (a == b) return a + Compute(0.693147180559945309417);
    if (difference > Compute(0)) return a + log_above_1(exp_of(-difference));
    if (difference <= Compute(0)) return b + log_above_1(exp_of(difference));
    return difference;  // NaN
}

struct Sequence {
    int n, places, steps;  // label positions, time steps
};

__device__ __forceinline__ int limited(int value, long long most) { return value < 0 ? 0 : value > most ? (int)most : value; }

__device__ __forceinline__ Sequence sequence_at(const Params& p, int n) {
    const int length = limited(p.label_lengths[n * p.label_lengths_stride[0]], p.longest);
    return {n, 2 * length + 1, limited(p.input_lengths[n * p.input_lengths_stride[0]], p.steps)};
}

__device__ __forceinline__ int class_of(const Params& p, int n, int place) {
    if (place % 2 == 0) return 0;
    return limited(p.labels[n * p.labels_stride[0] + place / 2 * p.labels_stride[1]], p.classes - 1);
}

// Whether a position is reachable from two positions before it.
__device__ __forceinline__ bool skips(const int* classes, int place) {
    return place % 2 == 1 && place >= 3 && classes[place] != classes[place - 2];
}

__device__ __forceinline__ Compute probability(const Params& p, int t, int n, int c) {
    return widen<Compute>(p.probs[t * p.probs_stride[0] + n * p.probs_stride[1] + c * p.probs_stride[2]]);
}

// The rows of a CTA, one value for each label position: in shared memory, or in scratch memory if they are too long.
struct Rows {
    Compute *one, *other, *spelled;
    int *classes, *next;

    __device__ __forceinline__ Rows(const Params& p, unsigned char* shared) {
        unsigned char* memory = p.rows ? (unsigned char*)p.rows + blockIdx.x * p.row_bytes : shared;
        one = (Compute*)memory;
        other = one + p.places;
        spelled = other + p.places;
        classes = (int*)(spelled + p.places);
        next = classes + p.places;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1) ctc_read(const __grid_constant__ Params p) {
    extern __shared__ uint4 words[];
    const Rows rows(p, (unsigned char*)words);
    const Sequence q = sequence_at(p, (int)blockIdx.x);
    for (int s = (int)threadIdx.x; s < (int)p.places; s += THREADS) rows.classes[s] = class_of(p, q.n, s);
    __syncthreads();
    Compute *row = rows.one, *before = rows.other;
    for (int t = 0; t < q.steps; ++t) {
        for (int s = (int)threadIdx.x; s < q.places; s += THREADS) {
            const Compute emitted = log_of(probability(p, t, q.n, rows.classes[s]));
            Compute value = s < 2 ? Compute(0) : log_zero();
            if (t) {
                value = log_add(before[s], s > 0 ? before[s - 1] : log_zero());
                value = log_add(value, skips(rows.classes, s) ? before[s - 2] : log_zero());
            }
            row[s] = value + emitted;
            p.read[((long long)q.n * p.steps + t) * p.places + s] = row[s];
        }
        __syncthreads();
        Compute* const last = row;
        row = before;
        before = last;
    }
    if (threadIdx.x > 0) return;
    Compute total = q.places > 1 ? log_zero() : Compute(0);
    if (q.steps > 0) total = q.places > 1 ? log_add(before[q.places - 1], before[q.places - 2]) : before[0];
    p.totals[q.n] = total;
    p.costs[q.n * p.costs_stride[0]] = narrow<Cost>(-total);
}

__device__ __forceinline__ bool is_possible(Compute total) { return total - total == Compute(0); }

// Gradients of classes outside the label: the probabilities, or 0 if the sequence has no alignment.
extern "C" __global__ void __launch_bounds__(THREADS, 1) ctc_fill(const __grid_constant__ Params p) {
    const long long count = p.steps * p.batch * p.classes;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < count; i += (long long)gridDim.x * THREADS) {
        const long long c = i % p.classes, row = i / p.classes;
        const int n = (int)(row % p.batch), t = (int)(row / p.batch);
        const bool is_inside = t < sequence_at(p, n).steps && is_possible(p.totals[n]);
        const Compute value = is_inside ? probability(p, t, n, (int)c) : Compute(0);
        p.gradients[t * p.gradients_stride[0] + n * p.gradients_stride[1] + c * p.gradients_stride[2]] = narrow<Gradient>(value);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) ctc_gradient(const __grid_constant__ Params p) {
    extern __shared__ uint4 words[];
    const Rows rows(p, (unsigned char*)words);
    const Sequence q = sequence_at(p, (int)blockIdx.x);
    const Compute total = p.totals[q.n];
    if (!is_possible(total)) return;
    for (int s = (int)threadIdx.x; s < q.places; s += THREADS) rows.classes[s] = class_of(p, q.n, s);
    __syncthreads();
    // The next position of the same class; the first position of a class adds all. Negative: not the first.
    for (int s = (int)threadIdx.x; s < q.places; s += THREADS) {
        int next = s + 1, first = 0;
        while (next < q.places && rows.classes[next] != rows.classes[s]) ++next;
        while (rows.classes[first] != rows.classes[s]) ++first;
        rows.next[s] = first == s ? next : -next;
    }
    Compute *row = rows.one, *after = rows.other;
    for (int t = q.steps - 1; t >= 0; --t) {
        for (int s = (int)threadIdx.x; s < q.places; s += THREADS) {
            Compute left = s >= q.places - 2 ? Compute(0) : log_zero();
            if (t < q.steps - 1) {
                left = log_add(after[s], s + 1 < q.places ? after[s + 1] : log_zero());
                left = log_add(left, s + 2 < q.places && skips(rows.classes, s + 2) ? after[s + 2] : log_zero());
            }
            rows.spelled[s] = exp_of(p.read[((long long)q.n * p.steps + t) * p.places + s] + left - total);
            row[s] = left + log_of(probability(p, t, q.n, rows.classes[s]));
        }
        __syncthreads();
        for (int s = (int)threadIdx.x; s < q.places; s += THREADS) {
            int next = rows.next[s];
            if (next < 0) continue;
            Compute class_sum = rows.spelled[s];
            for (; next < q.places; next = -rows.next[next]) class_sum += rows.spelled[next];
            const int c = rows.classes[s];
            p.gradients[t * p.gradients_stride[0] + q.n * p.gradients_stride[1] + c * p.gradients_stride[2]] =
                narrow<Gradient>(probability(p, t, q.n, c) - class_sum);
        }
        __syncthreads();
        Compute* const last = row;
        row = after;
        after = last;
    }
}
