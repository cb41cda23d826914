"""Convolution, bias and ReLU from raw backend descriptors, as a C program would write them.

A bank of four 3x3 edge filters runs over each colour of a photograph. Colours are groups: x is [N, G, C, H, W]
with G = 3 and C = 1, w is [G, K, C, R, S], y is [N, G, K, H, W]. There is no group attribute, the extra axis
says it all; SPATIAL_DIMS stays 2.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from graphdnn.backend import (
    constants,
    cudnnBackendCreateDescriptor,
    cudnnBackendExecute,
    cudnnBackendFinalize,
    cudnnBackendGetAttribute,
    cudnnBackendSetAttribute,
    cudnnCreate,
    cudnnDestroy,
)
from graphdnn.backend.descriptor import Descriptor
from graphdnn.cli.commands.demo.photo import photograph
from graphdnn.cli.commands.demo.report import Report, timed
from graphdnn.dtypes import Array
from graphdnn.text_format import seconds, size, table

X, W, BIAS, Y = 1, 2, 3, 4  # uids: any int64, and only this graph knows them
CONVOLVED, SHIFTED = 10, 11  # virtual: values between the operations

EDGES = np.array(
    [
        [[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]],  # dark to bright, left to right
        [[-1, -2, -1], [0, 0, 0], [1, 2, 1]],  # dark to bright, downwards
        [[0, -1, 0], [-1, 4, -1], [0, -1, 0]],  # bright points
        [[0, 1, 0], [1, -4, 1], [0, 1, 0]],  # dark points
    ]
)
BRIGHTNESS = np.array([0.299, 0.587, 0.114])  # how much each colour counts
THRESHOLD = 0.25


def describe(kind: Any, *attributes: tuple[Any, ...]) -> Descriptor:
    """Create, set each (name, type, element, ...), finalize."""
    descriptor = cudnnBackendCreateDescriptor(kind)
    for name, element_type, *elements in attributes:
        cudnnBackendSetAttribute(descriptor, name, element_type, len(elements), elements)
    cudnnBackendFinalize(descriptor)
    return descriptor


def tensor(uid: int, dims: tuple[int, ...], data_type: Any, *, virtual: bool = False) -> Descriptor:
    strides = [prod(dims[axis + 1 :]) for axis in range(len(dims))]
    return describe(
        constants.CUDNN_BACKEND_TENSOR_DESCRIPTOR,
        (constants.CUDNN_ATTR_TENSOR_UNIQUE_ID, constants.CUDNN_TYPE_INT64, uid),
        (constants.CUDNN_ATTR_TENSOR_DATA_TYPE, constants.CUDNN_TYPE_DATA_TYPE, data_type),
        (constants.CUDNN_ATTR_TENSOR_DIMENSIONS, constants.CUDNN_TYPE_INT64, *dims),
        (constants.CUDNN_ATTR_TENSOR_STRIDES, constants.CUDNN_TYPE_INT64, *strides),
        (constants.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, constants.CUDNN_TYPE_INT64, 8),
        (constants.CUDNN_ATTR_TENSOR_IS_VIRTUAL, constants.CUDNN_TYPE_BOOLEAN, virtual),
    )


def convolution(data_type: Any, x: Descriptor, w: Descriptor, y: Descriptor) -> Descriptor:
    setting = describe(
        constants.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
        (constants.CUDNN_ATTR_CONVOLUTION_COMP_TYPE, constants.CUDNN_TYPE_DATA_TYPE, data_type),
        (
            constants.CUDNN_ATTR_CONVOLUTION_CONV_MODE,
            constants.CUDNN_TYPE_CONVOLUTION_MODE,
            constants.CUDNN_CROSS_CORRELATION,
        ),
        (constants.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, constants.CUDNN_TYPE_INT64, 2),
        (constants.CUDNN_ATTR_CONVOLUTION_DILATIONS, constants.CUDNN_TYPE_INT64, 1, 1),
        (constants.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, constants.CUDNN_TYPE_INT64, 1, 1),
        (constants.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, constants.CUDNN_TYPE_INT64, 1, 1),
        (constants.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, constants.CUDNN_TYPE_INT64, 1, 1),
    )
    child = constants.CUDNN_TYPE_BACKEND_DESCRIPTOR
    return describe(
        constants.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
        (constants.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, child, setting),
        (constants.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, child, x),
        (constants.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, child, w),
        (constants.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, child, y),
        (constants.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, constants.CUDNN_TYPE_DOUBLE, 1.0),
        (constants.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, constants.CUDNN_TYPE_DOUBLE, 0.0),
    )


def pointwise(mode: Any, data_type: Any, x: Descriptor, y: Descriptor, b: Descriptor | None = None) -> Descriptor:
    setting = describe(
        constants.CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
        (constants.CUDNN_ATTR_POINTWISE_MODE, constants.CUDNN_TYPE_POINTWISE_MODE, mode),
        (constants.CUDNN_ATTR_POINTWISE_MATH_PREC, constants.CUDNN_TYPE_DATA_TYPE, data_type),
    )
    child = constants.CUDNN_TYPE_BACKEND_DESCRIPTOR
    second = () if b is None else ((constants.CUDNN_ATTR_OPERATION_POINTWISE_BDESC, child, b),)
    return describe(
        constants.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
        (constants.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, child, setting),
        (constants.CUDNN_ATTR_OPERATION_POINTWISE_XDESC, child, x),
        *second,
        (constants.CUDNN_ATTR_OPERATION_POINTWISE_YDESC, child, y),
    )


def convolution_bias_relu(handle: Any, data_type: Any, x: tuple[int, ...], w: tuple[int, ...]) -> Descriptor:
    """y = relu(conv(x, w) + bias): three operations. The results between them never reach memory."""
    y = (x[0], w[0], w[1], *x[3:])
    convolved = tensor(CONVOLVED, y, data_type, virtual=True)
    shifted = tensor(SHIFTED, y, data_type, virtual=True)
    bias = tensor(BIAS, (1, w[0], w[1], 1, 1), data_type)
    operations = (
        convolution(data_type, tensor(X, x, data_type), tensor(W, w, data_type), convolved),
        pointwise(constants.CUDNN_POINTWISE_ADD, data_type, convolved, shifted, bias),
        pointwise(constants.CUDNN_POINTWISE_RELU_FWD, data_type, shifted, tensor(Y, y, data_type)),
    )
    return describe(
        constants.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
        (constants.CUDNN_ATTR_OPERATIONGRAPH_HANDLE, constants.CUDNN_TYPE_HANDLE, handle),
        (constants.CUDNN_ATTR_OPERATIONGRAPH_OPS, constants.CUDNN_TYPE_BACKEND_DESCRIPTOR, *operations),
    )


def ranked_configs(graph: Descriptor) -> list[Descriptor]:
    """What the heuristics propose, best first: ask how many, create as many, have them filled."""
    heuristics = describe(
        constants.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
        (constants.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, constants.CUDNN_TYPE_BACKEND_DESCRIPTOR, graph),
        (constants.CUDNN_ATTR_ENGINEHEUR_MODE, constants.CUDNN_TYPE_HEUR_MODE, constants.CUDNN_HEUR_MODE_A),
    )
    name, kind = constants.CUDNN_ATTR_ENGINEHEUR_RESULTS, constants.CUDNN_TYPE_BACKEND_DESCRIPTOR
    count, _ = cudnnBackendGetAttribute(heuristics, name, kind, 0)
    configs = [cudnnBackendCreateDescriptor(constants.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) for _ in range(count)]
    cudnnBackendGetAttribute(heuristics, name, kind, count, configs)
    return configs


def execution_plan(handle: Any, config: Descriptor) -> Descriptor:
    return describe(
        constants.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
        (constants.CUDNN_ATTR_EXECUTION_PLAN_HANDLE, constants.CUDNN_TYPE_HANDLE, handle),
        (constants.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, constants.CUDNN_TYPE_BACKEND_DESCRIPTOR, config),
    )


def workspace_size(plan: Descriptor) -> int:
    _, (found,) = cudnnBackendGetAttribute(
        plan, constants.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, constants.CUDNN_TYPE_INT64, 1
    )
    return int(found)


def variant_pack(arrays: dict[int, Array], workspace: Array) -> Descriptor:
    """Pointers are plain addresses here, as in C; arrays are accepted as well."""
    addresses = [array.ctypes.data for array in arrays.values()]
    return describe(
        constants.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
        (constants.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, constants.CUDNN_TYPE_INT64, *arrays),
        (constants.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, constants.CUDNN_TYPE_VOID_PTR, *addresses),
        (
            constants.CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
            constants.CUDNN_TYPE_VOID_PTR,
            workspace.ctypes.data if workspace.size else None,
        ),
    )


def by_taps(x: Array, w: Array, bias: Array) -> Array:
    """The same without the library: one term per filter tap, in float64."""
    height, width = x.shape[-2:]
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1)))
    y = np.zeros((x.shape[0], *w.shape[:2], height, width)) + bias
    for row in range(w.shape[-2]):
        for column in range(w.shape[-1]):
            window = padded[..., row : row + height, column : column + width]  # [N, G, 1, H, W]
            y += w[None, :, :, 0, row, column, None, None].astype(np.float64) * window
    return np.asarray(np.maximum(y, 0))


def rounding_bound(x: Array, w: Array, bias: Array) -> float:
    """No sum of n float32 terms is off by more than n units in the last place of the sum of their magnitudes."""
    terms = prod(w.shape[2:]) + 1
    magnitude = np.abs(w).sum(axis=(2, 3, 4)).max() * np.abs(x).max() + np.abs(bias).max()
    return float((terms + 1) * 2.0**-24 * magnitude)


def operands() -> tuple[Array, Array, Array]:
    """The photograph as x, and the bank of filters with its thresholds, scaled by each colour's brightness."""
    x = np.moveaxis(photograph(), -1, 0)[None, :, None].astype(np.float32) / 255
    w = (BRIGHTNESS[:, None, None, None, None] * EDGES[None, :, None]).astype(np.float32)
    bias = np.repeat(-THRESHOLD * BRIGHTNESS[None, :, None, None, None], len(EDGES), axis=2).astype(np.float32)
    return np.ascontiguousarray(x), w, np.ascontiguousarray(bias)


def run(report: Report) -> None:
    x, w, bias = operands()
    handle = cudnnCreate()
    graph = convolution_bias_relu(handle, constants.CUDNN_DATA_FLOAT, x.shape, w.shape)
    report.say(f"photograph x {list(x.shape)} float32, edge filters w {list(w.shape)}: each colour is a group")
    report.say()
    report.say(graph.content.fused)

    exact = by_taps(x, w, bias)
    double = np.empty(exact.shape)
    wide = convolution_bias_relu(handle, constants.CUDNN_DATA_DOUBLE, x.shape, w.shape)
    execute(
        handle, execution_plan(handle, ranked_configs(wide)[0]), [a.astype(np.float64) for a in (x, w, bias)], double
    )

    rows, largest = [], 0.0
    for config in ranked_configs(graph):
        plan, y = execution_plan(handle, config), np.empty(exact.shape, np.float32)
        taken = execute(handle, plan, [x, w, bias], y)
        difference = float(np.abs(y - double).max())
        largest = max(largest, difference)
        made = plan.content.plan
        rows.append([
            made.name, seconds(made.config.predicted_seconds), seconds(taken), size(workspace_size(plan)),
            f"{difference:.2e}",
        ])  # fmt: skip
    cudnnDestroy(handle)
    report.say()
    report.say("ranking in mode A, every configuration run:")
    head = ["engine", "predicted", "measured", "workspace", "largest difference from float64"]
    report.say(table(head, rows, right=(1, 2, 3, 4)))
    bound = rounding_bound(x, w, bias)
    report.say(f"{np.count_nonzero(double) / double.size:.1%} of the filtered values are edges above the threshold")
    report.say()
    report.check("every engine within float32's rounding of the float64 run", largest <= bound, f"bound {bound:.2e}")
    gap = float(np.abs(double - exact).max())
    report.check("the float64 run agrees with a plain loop over the taps", gap <= bound * 2.0**-29, f"{gap:.1e}")


def execute(handle: Any, plan: Descriptor, inputs: list[Array], y: Array) -> float:
    """Seconds of the second run: the first one also touches fresh memory."""
    workspace = np.empty(workspace_size(plan), np.uint8)
    pack = variant_pack(dict(zip((X, W, BIAS, Y), (*inputs, y), strict=True)), workspace)
    cudnnBackendExecute(handle, plan, pack)
    return timed(lambda: cudnnBackendExecute(handle, plan, pack))
