// Where in the image the positions of each piece of a grid lie, a warp for a piece (grid_sample.cuh): a tile of the image
// looks only at pieces that may meet it.

extern "C" __global__ void __launch_bounds__(THREADS) grid_sample_boxes(const __grid_constant__ Params p) {
    pdl_trigger();
    const unsigned int piece = blockIdx.x * (THREADS / 32) + threadIdx.x / 32, pieces = (unsigned int)p.pieces;
    if (piece >= pieces * (unsigned int)p.images) return;
    const unsigned int n = piece / pieces;
    const Position position = position_in((int)(piece - n * pieces), p);
    pdl_wait();
    Place place;
    place.is_near = false;
    if (position.is_one) place = place_at(n, position.row, position.column, p);
    constexpr int FAR = 0x7fffffff;
    Box box = {FAR, FAR, -FAR, -FAR};
    if (place.is_near) box = {place.left, place.top, place.left, place.top};
    box.left = __reduce_min_sync(~0u, box.left);
    box.top = __reduce_min_sync(~0u, box.top);
    box.right = __reduce_max_sync(~0u, box.right);
    box.bottom = __reduce_max_sync(~0u, box.bottom);
    if (threadIdx.x % 32 == 0) ((Box*)p.boxes)[piece] = box;
}
