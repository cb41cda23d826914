"""Integers stay integers: int8 into int32, int16 into int64, every bit right; and what an overflow looks like."""

import numpy as np

import graphdnn

rng = np.random.default_rng(0)


def convolve(x, w, accumulator):
    graph = graphdnn.Graph("integers", compute_data_type=accumulator)
    image, filters = graph.tensor_like(x, name="x"), graph.tensor_like(w, name="w")
    y = graph.conv_fprop(image, filters, padding=[1, 1]).set_data_type(accumulator).set_output(True)
    return graph.run({image: x, filters: w})[y]


def exact(x, w):
    """With Python's integers, which have no end."""
    padded = np.pad(x.astype(object), ((0, 0), (0, 0), (1, 1), (1, 1)))
    height, width = x.shape[2:]
    y = np.zeros((len(x), len(w), height, width), object)
    for row, column in np.ndindex(3, 3):
        window = padded[:, :, row : row + height, column : column + width]
        y += np.einsum("nchw,kc->nkhw", window, w[:, :, row, column].astype(object))
    return y


def bound(x, w):
    """No sum exceeds max|x| * sum|w|, whatever its order."""
    return int(np.abs(x.astype(np.int64)).max() * np.abs(w.astype(np.int64)).sum(axis=(1, 2, 3)).max())


# int8: 9 * 32 products of at most 2^14 each fit easily.
x, w = rng.integers(-128, 128, (2, 32, 12, 12), np.int8), rng.integers(-128, 128, (8, 32, 3, 3), np.int8)
print(f"int8, int32 accumulator: no sum exceeds {bound(x, w):,}, limit {2**31:,}")
print("  exact:", np.array_equal(convolve(x, w, "int32"), exact(x, w)))

# int16 over its full range: int32 wraps as the hardware does, int64 is exact.
x, w = (rng.integers(-(2**15), 2**15, shape, np.int16) for shape in ((2, 32, 12, 12), (8, 32, 3, 3)))
truth = exact(x, w)
print(f"int16: no sum exceeds {bound(x, w):,}, which int32 does not hold")
print("  exact with int64:", np.array_equal(convolve(x, w, "int64"), truth))
wrapped = convolve(x, w, "int32")
print(f"  int32 is off in {np.count_nonzero(wrapped != truth)} of {truth.size} values,")
print("  but right modulo 2^32:", np.array_equal((wrapped.astype(object) - truth) % 2**32, 0 * truth))

# float32 is no substitute: it holds whole numbers up to 2^24 only.
floats = convolve(x.astype(np.float32), w.astype(np.float32), "float32")
print(f"  float32 is off in {np.count_nonzero(floats.astype(np.int64) != truth)} values")

# An int8 result saturates instead of wrapping: what requantised layers rely on.
graph = graphdnn.Graph("requantised", compute_data_type="float32")
image, filters = graph.tensor([2, 32, 12, 12], data_type="int8"), graph.tensor([8, 32, 3, 3], data_type="int8")
factor = graph.tensor_scalar(1 / 1024)
summed = graph.conv_fprop(image, filters, padding=[1, 1], compute_data_type="int32").set_data_type("int32")
y = graph.mul(summed, factor).set_data_type("int8").set_output(True)
x, w = rng.integers(-128, 128, (2, 32, 12, 12), np.int8), rng.integers(-128, 128, (8, 32, 3, 3), np.int8)
result = graph.run({image: x, filters: w})[y]
wanted = np.clip(np.rint(exact(x, w).astype(np.float64) / 1024), -128, 127)
print(f"int8 result of {len(graph.fused)} kernel, saturated to {result.min()} ... {result.max()}")
print("  exact:", np.array_equal(result, wanted))
