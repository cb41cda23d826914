"""Three legacy calls, replayed as one kernel, and the same as a script for the graph builder."""

import numpy as np

from graphdnn import v6

FLOAT, NCHW = v6.CUDNN_DATA_FLOAT, v6.CUDNN_TENSOR_NCHW
X, W, B, Y = (8, 16, 28, 28), (32, 16, 3, 3), (1, 32, 1, 1), (8, 32, 28, 28)


def described(dims):
    desc = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensor4dDescriptor(desc, NCHW, FLOAT, *dims)
    return desc


handle = v6.cudnnCreate()
filters, conv = v6.cudnnCreateFilterDescriptor(), v6.cudnnCreateConvolutionDescriptor()
v6.cudnnSetFilter4dDescriptor(filters, FLOAT, NCHW, *W)
v6.cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, v6.CUDNN_CROSS_CORRELATION, FLOAT)
relu = v6.cudnnCreateActivationDescriptor()
v6.cudnnSetActivationDescriptor(relu, v6.CUDNN_ACTIVATION_RELU, v6.CUDNN_PROPAGATE_NAN, 0.0)
x_desc, b_desc, y_desc = described(X), described(B), described(Y)

rng = np.random.default_rng(0)
x, w, b = (rng.standard_normal(dims).astype(np.float32) for dims in (X, W, B))


def layer(y):
    """What a program for cuDNN 6.0 has."""
    algorithm = v6.cudnnGetConvolutionForwardAlgorithm(
        handle, x_desc, filters, conv, y_desc, v6.CUDNN_CONVOLUTION_FWD_PREFER_FASTEST, 0
    )
    v6.cudnnConvolutionForward(handle, 1.0, x_desc, x, filters, w, conv, algorithm, None, 0, 0.0, y_desc, y)
    v6.cudnnAddTensor(handle, 1.0, b_desc, b, 1.0, y_desc, y)
    v6.cudnnActivationForward(handle, relu, 1.0, y_desc, y, 0.0, y_desc, y)


one_by_one, replayed = np.empty(Y, np.float32), np.empty(Y, np.float32)
with v6.record() as recording:
    layer(replayed)  # runs as ever
x[...] = rng.standard_normal(X)  # the next images
layer(one_by_one)
recording.replay()

print("calls:", ", ".join(recording.calls))
print(recording.fused[0])
print("equal results:", np.allclose(one_by_one, replayed, rtol=1e-4, atol=1e-4))
print()
print(recording.migration())
