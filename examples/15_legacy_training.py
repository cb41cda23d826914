"""A small network trained through the legacy calls: convolution, bias, ReLU, pooling, softmax, backward, momentum.

The gradients are blended into the velocities by alpha and beta, as such code did: v = momentum * v - rate * gradient.
"""

# ruff: noqa: F403, F405, N816  the star import gives the C names, as a C program sees them

import numpy as np

from graphdnn.v6 import *

N, CLASSES, RATE, MOMENTUM = 32, 4, 0.1, 0.9
draw = np.random.default_rng(0)


def tensor(*dims):
    descriptor = cudnnCreateTensorDescriptor()
    cudnnSetTensor4dDescriptor(descriptor, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, *dims)
    return descriptor, np.empty(dims, np.float32)


def filters(*dims):
    descriptor = cudnnCreateFilterDescriptor()
    cudnnSetFilter4dDescriptor(descriptor, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, *dims)
    return descriptor, (draw.standard_normal(dims) / np.sqrt(np.prod(dims[1:]))).astype(np.float32)


def convolution(padding):
    descriptor = cudnnCreateConvolutionDescriptor()
    cudnnSetConvolution2dDescriptor(descriptor, padding, padding, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT)
    return descriptor


handle = cudnnCreate()
relu = cudnnCreateActivationDescriptor()
cudnnSetActivationDescriptor(relu, CUDNN_ACTIVATION_RELU, CUDNN_NOT_PROPAGATE_NAN, 0.0)
pool = cudnnCreatePoolingDescriptor()
cudnnSetPooling2dDescriptor(pool, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2)
same, whole = convolution(2), convolution(0)

xDesc, x = tensor(N, 1, 16, 16)
wDesc, w = filters(8, 1, 5, 5)
bDesc, b = tensor(1, 8, 1, 1)
yDesc, y = tensor(*cudnnGetConvolution2dForwardOutputDim(same, xDesc, wDesc))
pDesc, p = tensor(*cudnnGetPooling2dForwardOutputDim(pool, yDesc))
fDesc, f = filters(CLASSES, 8, 8, 8)  # the classifier, as a convolution with one output position
zDesc, z = tensor(N, CLASSES, 1, 1)

# Images with a bright quarter; the class says which one.
labels = draw.integers(0, CLASSES, N)
x[:] = draw.standard_normal(x.shape) / 2
for image, label in zip(x[:, 0], labels, strict=True):
    image[8 * (label // 2) :, 8 * (label % 2) :][:8, :8] += 1

# Find runs and times every algorithm. It returns how many there are, and the results, fastest first.
count, results = cudnnFindConvolutionForwardAlgorithm(handle, xDesc, wDesc, same, yDesc, 8)
served = [result for result in results if result.status is CUDNN_STATUS_SUCCESS]  # with .algo, .time (ms) and .memory
print(f"{count} algorithms, {len(served)} of them for 5x5 filters, each with its time: {served[0].time > 0}")
algorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
size = cudnnGetConvolutionForwardWorkspaceSize(handle, xDesc, wDesc, same, yDesc, algorithm)
workspace = np.empty(size, np.uint8)
gemm, filter_1, data_1 = (
    CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
)  # fmt: skip

b[:] = 0
sums, a, dy, dp, probability = (np.empty_like(t) for t in (y, y, y, p, z))
vw, vb, vf = (np.zeros_like(t) for t in (w, b, f))
losses = []
for _ in range(30):
    cudnnConvolutionForward(handle, 1.0, xDesc, x, wDesc, w, same, algorithm, workspace, size, 0.0, yDesc, sums)
    cudnnAddTensor(handle, 1.0, bDesc, b, 1.0, yDesc, sums)
    cudnnActivationForward(handle, relu, 1.0, yDesc, sums, 0.0, yDesc, a)
    cudnnPoolingForward(handle, pool, 1.0, yDesc, a, 0.0, pDesc, p)
    cudnnConvolutionForward(handle, 1.0, pDesc, p, fDesc, f, whole, gemm, None, 0, 0.0, zDesc, z)
    softmax = CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL
    cudnnSoftmaxForward(handle, *softmax, 1.0, zDesc, z, 0.0, zDesc, probability)
    losses.append(float(-np.log(probability[np.arange(N), labels]).mean()))

    dz = probability.copy()
    dz[np.arange(N), labels] -= 1
    dz /= N
    cudnnConvolutionBackwardData(handle, 1.0, fDesc, f, zDesc, dz, whole, data_1, None, 0, 0.0, pDesc, dp)
    cudnnConvolutionBackwardFilter(
        handle, -RATE, pDesc, p, zDesc, dz, whole, filter_1, None, 0, MOMENTUM, fDesc, vf
    )  # fmt: skip
    cudnnPoolingBackward(handle, pool, 1.0, pDesc, p, pDesc, dp, yDesc, a, 0.0, yDesc, dy)
    cudnnActivationBackward(handle, relu, 1.0, yDesc, a, yDesc, dy, yDesc, sums, 0.0, yDesc, dy)
    cudnnConvolutionBackwardBias(handle, -RATE, yDesc, dy, MOMENTUM, bDesc, vb)
    cudnnConvolutionBackwardFilter(handle, -RATE, xDesc, x, yDesc, dy, same, filter_1, None, 0, MOMENTUM, wDesc, vw)
    for weights, velocity in ((w, vw), (b, vb), (f, vf)):
        np.add(weights, velocity, out=weights)

right = (probability[:, :, 0, 0].argmax(axis=1) == labels).mean()
print(f"loss {losses[0]:.2f} -> {losses[-1]:.3f}; {right:.0%} of the images are right")
print(f"learned: {losses[-1] < losses[0] / 10}")

# A refusal is an error with the reason; the status is what C would have returned.
try:
    algorithm = CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
    cudnnConvolutionForward(handle, 1.0, xDesc, x, wDesc, w, same, algorithm, None, 0, 0.0, yDesc, y)
except CudnnError as error:
    print(error)
cudnnDestroy(handle)
