"""The legacy calls: an LSTM learns to repeat what it heard two steps ago.

Forward, gradient of the data, gradient of the weights, and a step downhill: the calls of a program that was written for
cuDNN 6.0, on NumPy arrays.
"""

import numpy as np

from graphdnn import v6

STEPS, BATCH, HIDDEN, DELAY = 12, 16, 16, 2
FLOAT = v6.CUDNN_DATA_FLOAT


def described(*dims):
    desc = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensorNdDescriptor(desc, FLOAT, 3, dims, [dims[1] * dims[2], dims[2], 1])
    return desc


handle = v6.cudnnCreate()
dropout = v6.cudnnCreateDropoutDescriptor()
v6.cudnnSetDropoutDescriptor(dropout, handle, 0.0, None, 0, 0)
lstm = v6.cudnnCreateRNNDescriptor()
v6.cudnnSetRNNDescriptor_v6(
    handle, lstm, HIDDEN, 1, dropout, v6.CUDNN_LINEAR_INPUT, v6.CUDNN_UNIDIRECTIONAL, v6.CUDNN_LSTM,
    v6.CUDNN_RNN_ALGO_STANDARD, FLOAT,
)  # fmt: skip

# A descriptor for each step; the states; the weights, as many as the library says.
x_desc, y_desc = [described(BATCH, 1, 1)] * STEPS, [described(BATCH, HIDDEN, 1)] * STEPS
state = described(1, BATCH, HIDDEN)
size = v6.cudnnGetRNNParamsSize(handle, lstm, x_desc[0], FLOAT)
w_desc, part = v6.cudnnCreateFilterDescriptor(), v6.cudnnCreateFilterDescriptor()
v6.cudnnSetFilterNdDescriptor(w_desc, FLOAT, v6.CUDNN_TENSOR_NCHW, 3, [size // 4, 1, 1])

rng = np.random.default_rng(0)
w = rng.uniform(-0.3, 0.3, size // 4).astype(np.float32)
forget = v6.cudnnGetRNNLinLayerBiasParams(handle, lstm, 0, x_desc[0], w_desc, w, 1, part)
forget[:] = 1.0  # a view of w: the forget gate begins open
print("the forget gate's bias is", v6.cudnnGetFilterNdDescriptor(part, 3)[3])

workspace = np.empty(v6.cudnnGetRNNWorkspaceSize(handle, lstm, STEPS, x_desc), np.uint8)
reserve = np.empty(v6.cudnnGetRNNTrainingReserveSize(handle, lstm, STEPS, x_desc), np.uint8)
y, dx = np.empty((STEPS, BATCH, HIDDEN), np.float32), np.empty((STEPS, BATCH, 1), np.float32)
dw, mean, square = np.empty_like(w), np.zeros_like(w), np.zeros_like(w)


def loss_and_gradient(y, x):
    """The first output against the input of two steps before."""
    error = np.zeros_like(y)
    error[DELAY:, :, :1] = y[DELAY:, :, :1] - x[:-DELAY]
    return float((error**2).mean()) * HIDDEN, error / (STEPS * BATCH)


for step in range(1, 201):
    x = rng.choice([-0.5, 0.5], (STEPS, BATCH, 1)).astype(np.float32)
    v6.cudnnRNNForwardTraining(
        handle, lstm, STEPS, x_desc, x, state, None, state, None, w_desc, w, y_desc, y, state, None, state, None,
        workspace, workspace.nbytes, reserve, reserve.nbytes,
    )  # fmt: skip
    loss, dy = loss_and_gradient(y, x)
    v6.cudnnRNNBackwardData(
        handle, lstm, STEPS, y_desc, y, y_desc, dy, state, None, state, None, w_desc, w, state, None, state, None,
        x_desc, dx, state, None, state, None, workspace, workspace.nbytes, reserve, reserve.nbytes,
    )  # fmt: skip
    dw[:] = 0  # the call adds
    v6.cudnnRNNBackwardWeights(
        handle, lstm, STEPS, x_desc, x, state, None, y_desc, y, workspace, workspace.nbytes, w_desc, dw, reserve,
        reserve.nbytes,
    )  # fmt: skip
    mean += 0.1 * (dw - mean)
    square += 0.001 * (dw**2 - square)
    w -= 0.01 * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    if step in (1, 100, 200):
        print(f"step {step:3d}: loss {loss:.4f}")

print("learned:", loss < 0.01)
print(v6.explain().split("\n\nranking")[0])
