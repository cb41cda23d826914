"""The broken half of an old bug report, which runs here: INT8 in NHWC with INT32 sums, three channels and one filter.

The library of the report answered CUDNN_STATUS_NOT_SUPPORTED to every algorithm, because neither channel count is a
multiple of four, and did not say so. Everything else is as in seed000_float32.py.
"""

import numpy as np

from graphdnn import v6

handle = v6.cudnnCreate()
x_desc = v6.cudnnCreateTensorDescriptor()
v6.cudnnSetTensor4dDescriptor(x_desc, v6.CUDNN_TENSOR_NHWC, v6.CUDNN_DATA_INT8, 1, 3, 600, 960)
w_desc = v6.cudnnCreateFilterDescriptor()
v6.cudnnSetFilter4dDescriptor(w_desc, v6.CUDNN_DATA_INT8, v6.CUDNN_TENSOR_NHWC, 1, 3, 3, 3)
conv_desc = v6.cudnnCreateConvolutionDescriptor()
v6.cudnnSetConvolution2dDescriptor(conv_desc, 0, 0, 1, 1, 1, 1, v6.CUDNN_CONVOLUTION, v6.CUDNN_DATA_INT32)
n, c, h, w = v6.cudnnGetConvolution2dForwardOutputDim(conv_desc, x_desc, w_desc)

rng = np.random.default_rng(0)
x = rng.integers(-128, 128, (1, 600, 960, 3), np.int8)  # memory of NHWC
filters = rng.integers(-128, 128, (1, 3, 3, 3), np.int8)  # K, R, S, C in memory
algorithm = v6.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM

results = {}
for data_type, dtype in (
    (v6.CUDNN_DATA_INT32, np.int32),
    (v6.CUDNN_DATA_FLOAT, np.float32),
    (v6.CUDNN_DATA_INT8, np.int8),
):
    y_desc = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensor4dDescriptor(y_desc, v6.CUDNN_TENSOR_NHWC, data_type, n, c, h, w)
    y = np.empty((n, h, w, c), dtype)
    v6.cudnnConvolutionForward(handle, 1.0, x_desc, x, w_desc, filters, conv_desc, algorithm, None, 0, 0.0, y_desc, y)
    results[dtype] = y

flipped = filters[0, ::-1, ::-1]
i, j = 300, 500
by_hand = int((x[0, i : i + 3, j : j + 3].astype(np.int64) * flipped).sum())
print("sums of INT8 products, by hand:", by_hand, *(f"{d.__name__}: {y[0, i, j, 0]}" for d, y in results.items()))
assert results[np.int32][0, i, j, 0] == results[np.float32][0, i, j, 0] == by_hand
assert (results[np.int8] == np.clip(results[np.int32], -128, 127)).all()
print(v6.explain())

print("\nWhat 6.0 had against it:")
with v6.profile("6.0"):
    try:
        v6.cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, conv_desc, y_desc, algorithm)
    except v6.CudnnError as error:
        print(error.status.name)
        print(error)
