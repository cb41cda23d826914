// Rows that consist of short contiguous runs in many segments. Rows are channels, and segments are images; or rows are groups
// of channels of one channels-last image, and segments are its pixels. A CTA has CHANNELS adjacent rows, so that its part of a
// segment is contiguous. A thread reads the same vector of each of its segments. Each of its VEC_WIDTH elements always belongs to
// the same row, so sums run over segments first and over the elements of a row afterwards.
//
// The file of the direction defines SUMS, the sums of each element in the first pass; HAS_SECOND_PASS, whether a second pass
// over the cached elements follows; and the use of the sums.

#include "channel_planes_variant.cuh"

constexpr int WARPS = THREADS / 32, BATCH = 64 / (int)sizeof(Stored) > 1 ? 64 / (int)sizeof(Stored) : 1;

extern __shared__ uint4 segment_words[];

template <int N> struct Number {
    static constexpr int value = N;
};

struct Segments {
    Stored* cached;
    Compute *thread_sums, *group_sums, *element_sums, *dsmem_buffer;  // the last one: other CTAs' sums
    int begin, segment_count, vecs, row_elements, channels, concurrent_segments, vec_index;
    int first_segment;  // of a thread
    int segment_elements;  // elements of the CTA's rows in a segment
    int first_element, first_channel, slice;  // element of a segment, row, rank in the cluster
    bool is_active;
    // Coordinates of the thread's vector in segment n of the CTA.
    __device__ __forceinline__ void locate_segment(int n, int (&at)[RANK]) const {
        if constexpr (RANK == 3) at[0] = (int)blockIdx.y;
        at[RANK - 2] = first_element, at[RANK - 1] = begin + n;
    }
    // Coordinates of an element of a row of the CTA, without the segment.
    __device__ __forceinline__ void locate_row(int row, int element, int (&at)[ROW_RANK]) const {
        if constexpr (ROW_RANK == 3) at[0] = (int)blockIdx.y, at[1] = first_channel + row, at[2] = element;
        else at[0] = first_channel + row;
    }

    // The scale of an element of a row of the CTA.
    __device__ __forceinline__ Compute scale_at(const Params& p, int row, int element) const {
        int at[ROW_RANK];
        locate_row(row, element, at);
        Channel channel = {};
        of_channel(p, at, channel);
        return channel.scale[0];
    }

    // Calls each(n, vector) for every cached vector of this thread.
    template <class Each> __device__ __forceinline__ void each(Each each) const {
        for (int n = first_segment; is_active && n < segment_count; n += concurrent_segments) each(n, cached[n * vecs + vec_index]);
    }
};

__device__ __forceinline__ Segments locate_segments(const Params& p, int block) {
    Segments segments;
    segments.vecs = (int)p.vecs, segments.row_elements = (int)p.plane;
    const int tile = block / slices_of(p);
    segments.slice = block - tile * slices_of(p), segments.first_channel = tile * CHANNELS;
    const int parts = slices_of(p), images = (int)p.images, slice_segments = (images + parts - 1) / parts;
    segments.begin = segments.slice * slice_segments;
    // 0 or negative for a CTA beyond the last segment.
    segments.segment_count = images - segments.begin < slice_segments ? images - segments.begin : slice_segments;
    const int left = (int)p.channels - segments.first_channel;
    segments.channels = left < CHANNELS ? left : CHANNELS;
    segments.concurrent_segments = THREADS / segments.vecs;
    segments.first_segment = (int)threadIdx.x / segments.vecs, segments.vec_index = (int)threadIdx.x - segments.first_segment * segments.vecs;
    segments.first_element = segments.first_channel * segments.row_elements + segments.vec_index * VEC_WIDTH;
    segments.segment_elements = segments.channels * segments.row_elements;
    segments.is_active = segments.first_segment < segments.concurrent_segments && segments.vec_index * VEC_WIDTH < segments.segment_elements;
    segments.cached = (Stored*)segment_words;
    segments.thread_sums = (Compute*)(segments.cached + (CACHES ? slice_segments * segments.vecs : 0));
    segments.group_sums = segments.thread_sums + THREADS * PASSED_ELEMENTS;
    segments.element_sums = segments.group_sums + THREADS;
    segments.dsmem_buffer = segments.element_sums + SUMS * segments.vecs * VEC_WIDTH;
    return segments;
}

// Reduces the sums of threads to sums of rows, in a fixed order: over groups of concurrent segments, over these groups, and
// over the elements of a row.
template <int N>
__device__ __forceinline__ void reduce_rows(
    const Params& p, const Segments& segments, const Compute (&sum)[N][VEC_WIDTH], Compute (*row_sums)[CHANNELS]
) {
    const int thread = (int)threadIdx.x, warp = thread / 32;
    const int elements = segments.vecs * VEC_WIDTH, passed = segments.vecs * PASSED_ELEMENTS;
    const int max_groups = THREADS / passed, concurrent = segments.concurrent_segments;
    const int groups = max_groups < 2 ? 1 : concurrent < max_groups ? concurrent : max_groups;
    const int segments_per_group = (concurrent + groups - 1) / groups;
    #pragma unroll
    for (int v = 0; v < N; ++v)
        #pragma unroll
        for (int first = 0; first < VEC_WIDTH; first += PASSED_ELEMENTS) {
            const auto store_sum = [&](int i, Compute total) {
                const int e = i / segments.vecs, element = i - e * segments.vecs;
                segments.element_sums[v * elements + element * VEC_WIDTH + first + e] = total;
            };
            if (segments.first_segment < concurrent)
                #pragma unroll
                for (int e = 0; e < PASSED_ELEMENTS; ++e)
                    segments.thread_sums[(segments.first_segment * PASSED_ELEMENTS + e) * segments.vecs + segments.vec_index] =
                        sum[v][first + e];
            __syncthreads();
            for (int i = thread; i < passed * groups; i += THREADS) {
                const int group = i / passed, element = i - group * passed, begin = group * segments_per_group;
                const int end = begin + segments_per_group < concurrent ? begin + segments_per_group : concurrent;
                Compute total = (Compute)0;
                for (int n = begin; n < end; ++n) total += segments.thread_sums[n * passed + element];
                if (groups == 1) store_sum(element, total);
                else segments.group_sums[i] = total;
            }
            __syncthreads();
            if (groups == 1) continue;
            for (int i = thread; i < passed; i += THREADS) {
                Compute total = (Compute)0;
                for (int group = 0; group < groups; ++group) total += segments.group_sums[group * passed + i];
                store_sum(i, total);
            }
            __syncthreads();
        }
    for (int index = warp; index < N * segments.channels; index += WARPS) {
        const int v = index / segments.channels, row = index - v * segments.channels;
        const Compute* const row_values = segments.element_sums + v * elements + row * segments.row_elements;
        Compute total = (Compute)0;
        for (int i = thread % 32; i < segments.row_elements; i += 32) {
            if constexpr (SCALES_VARY) multiply_add(total, segments.scale_at(p, row, i), row_values[i]);
            else total += row_values[i];
        }
        #pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) total += __shfl_xor_sync(0xffffffffu, total, distance);
        if (thread % 32 == 0) row_sums[v][row] = total;
    }
    __syncthreads();
}

// Elements of a row in the segments of one CTA.
__device__ __forceinline__ Compute elements_of_slice(const Params& p, int part) {
    const int images = (int)p.images, parts = slices_of(p), slice_segments = (images + parts - 1) / parts;
    const int left = images - part * slice_segments;
    const int segments = left < 0 ? 0 : left < slice_segments ? left : slice_segments;
    return (Compute)segments * (Compute)p.plane;
}

// The second sum of one slice, corrected for the common mean. The second sum of a forward kernel is the squared deviation from
// the slice's own mean, so the distance of both means is added: M2 + n * (mean - common mean)^2.
__device__ __forceinline__ Compute centered_sum(const Params& p, int part, Compute first, Compute second, Compute common_sum) {
    if constexpr (HAS_SECOND_PASS) {
        const Compute elements = elements_of_slice(p, part);
        if (elements > (Compute)0) {
            const Compute delta = first / elements - common_sum / (Compute)p.elements;
            second += elements * delta * delta;
        }
    }
    return second;
}

// The rows of a thread's elements.
__device__ __forceinline__ void locate_rows(const Segments& segments, int (&rows)[VEC_WIDTH]) {
    const int first = segments.vec_index * VEC_WIDTH % segments.segment_elements;
    int row = first / segments.row_elements, element = first - row * segments.row_elements;
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        rows[e] = row;
        if (++element == segments.row_elements) {
            element = 0;
            if (++row == segments.channels) row = 0;
        }
    }
}

// Loads the statistics and factors of the thread's rows.
__device__ __forceinline__ void load_factors(const Params& p, const Segments& segments, const int (&rows)[VEC_WIDTH], Row& row) {
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) {
        // Beyond the row if the thread is inactive.
        const int element = segments.vec_index * VEC_WIDTH + e - rows[e] * segments.row_elements;
        int at[ROW_RANK];
        segments.locate_row(rows[e], element < segments.row_elements ? element : segments.row_elements - 1, at);
        Channel channel = {};
        of_channel(p, at, channel);
        set_channel_factors(channel, row, e);
    }
}

// Reads every vector of this thread from memory, and calls each(n, vector).
template <class Each>
__device__ __forceinline__ void for_each_loaded(const Params& p, const Segments& segments, L2Policy policy, Each each) {
    const auto load_batch = [&](int n, auto count) {
        constexpr int batch_size = decltype(count)::value;
        Stored batch[batch_size];
        #pragma unroll
        for (int i = 0; i < batch_size; ++i) {
            int at[RANK];
            segments.locate_segment(n + i * segments.concurrent_segments, at);
            load_elements(p, at, batch[i], policy);
        }
        #pragma unroll
        for (int i = 0; i < batch_size; ++i) each(n + i * segments.concurrent_segments, batch[i]);
    };
    if (segments.is_active) {
        int n = segments.first_segment;
        for (; n + (BATCH - 1) * segments.concurrent_segments < segments.segment_count; n += BATCH * segments.concurrent_segments)
            load_batch(n, Number<BATCH>());
        for (; n < segments.segment_count; n += segments.concurrent_segments) load_batch(n, Number<1>());
    }
}

// Computes the sums of rows in this slice, found[0] and found[1], and loads the factors of the rows.
__device__ __forceinline__ void compute_sums(
    const Params& p, const Segments& segments, int (&rows)[VEC_WIDTH], L2Policy policy, Row& row, Compute (*row_sums)[CHANNELS]
) {
    locate_rows(segments, rows);
    if constexpr (!HAS_SECOND_PASS) load_factors(p, segments, rows, row);
    Compute sum[SUMS][VEC_WIDTH] = {};
    for_each_loaded(p, segments, policy, [&](int n, const Stored& vec) {
        if constexpr (CACHES) segments.cached[n * segments.vecs + segments.vec_index] = vec;
        add(widened(vec), row, sum);
    });
    reduce_rows(p, segments, sum, row_sums);
    if constexpr (HAS_SECOND_PASS) {
        __shared__ Compute mean[CHANNELS];
        #pragma unroll 1
        for (int i = (int)threadIdx.x; i < segments.channels; i += THREADS)
            mean[i] = row_sums[0][i] / elements_of_slice(p, segments.slice);
        __syncthreads();
        Compute second[1][VEC_WIDTH] = {};
        #pragma unroll
        for (int e = 0; e < VEC_WIDTH; ++e) row.mean[e] = mean[rows[e]];
        segments.each([&](int, const Stored& vec) { add_second_pass(widened(vec), row, second); });
        reduce_rows(p, segments, second, row_sums + 1);
        load_factors(p, segments, rows, row);  // these loads overlap the wait for other CTAs
    }
}

// Stores the contribution of each row element to the gradients of scale and bias, by image and CTA.
__device__ __forceinline__ void store_element_sums(const Params& p, const Segments& segments) {
    const int elements = segments.vecs * VEC_WIDTH;
    for (int i = (int)threadIdx.x; i < segments.segment_elements; i += THREADS) {
        int at[ROW_RANK];
        segments.locate_row(i / segments.row_elements, i % segments.row_elements, at);
        at[0] = at[0] * slices_of(p) + segments.slice;
        store_row(p, at, segments.element_sums[i], segments.element_sums[elements + i]);
    }
}

// Stores the sums of rows, and gives each element the factors that depend on them.
__device__ __forceinline__ void finish_rows(
    const Params& p, const Segments& segments, const int (&rows)[VEC_WIDTH], Row& row, Compute (*row_sums)[CHANNELS]
) {
    #pragma unroll 1
    for (int i = (int)threadIdx.x; i < segments.channels; i += THREADS) {
        if (!SCALES_VARY && segments.slice == 0) {
            int at[ROW_RANK];
            segments.locate_row(i, 0, at);
            store_row(p, at, row_sums[0][i], row_sums[1][i]);
        }
        const Vec<Compute, 2> factors = factors_of(p, row_sums[0][i], row_sums[1][i]);
        row_sums[0][i] = factors.data[0], row_sums[1][i] = factors.data[1];
    }
    __syncthreads();
    #pragma unroll
    for (int e = 0; e < VEC_WIDTH; ++e) set_row_factors(row_sums[0][rows[e]], row_sums[1][rows[e]], row, e);
}
