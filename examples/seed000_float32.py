"""The working half of an old bug report: one FLOAT convolution in NCHW through the legacy calls.

x 1x3x600x960, filter 1x3x3x3, no padding, stride 1, dilation 1, CUDNN_CONVOLUTION, IMPLICIT_PRECOMP_GEMM.
"""

import numpy as np

from graphdnn import v6

handle = v6.cudnnCreate()
x_desc = v6.cudnnCreateTensorDescriptor()
v6.cudnnSetTensor4dDescriptor(x_desc, v6.CUDNN_TENSOR_NCHW, v6.CUDNN_DATA_FLOAT, 1, 3, 600, 960)
w_desc = v6.cudnnCreateFilterDescriptor()
v6.cudnnSetFilter4dDescriptor(w_desc, v6.CUDNN_DATA_FLOAT, v6.CUDNN_TENSOR_NCHW, 1, 3, 3, 3)
conv_desc = v6.cudnnCreateConvolutionDescriptor()
v6.cudnnSetConvolution2dDescriptor(conv_desc, 0, 0, 1, 1, 1, 1, v6.CUDNN_CONVOLUTION, v6.CUDNN_DATA_FLOAT)

n, c, h, w = v6.cudnnGetConvolution2dForwardOutputDim(conv_desc, x_desc, w_desc)
y_desc = v6.cudnnCreateTensorDescriptor()
v6.cudnnSetTensor4dDescriptor(y_desc, v6.CUDNN_TENSOR_NCHW, v6.CUDNN_DATA_FLOAT, n, c, h, w)

rng = np.random.default_rng(0)
x = rng.standard_normal((1, 3, 600, 960), np.float32)
filters = rng.standard_normal((1, 3, 3, 3), np.float32)
y = np.empty((n, c, h, w), np.float32)

algorithm = v6.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
size = v6.cudnnGetConvolutionForwardWorkspaceSize(handle, x_desc, w_desc, conv_desc, y_desc, algorithm)
v6.cudnnConvolutionForward(
    handle, 1.0, x_desc, x, w_desc, filters, conv_desc, algorithm, np.empty(size, np.uint8), size, 0.0, y_desc, y
)

flipped = filters[0, :, ::-1, ::-1]  # CUDNN_CONVOLUTION flips the filter
i, j = 300, 500
by_hand = (x[0, :, i : i + 3, j : j + 3].astype(np.float64) * flipped).sum()
print(f"y is {y.shape}; y[0, 0, {i}, {j}] = {y[0, 0, i, j]:.6f}, by hand {by_hand:.6f}")
assert abs(y[0, 0, i, j] - by_hand) < 1e-4
print(v6.explain())
