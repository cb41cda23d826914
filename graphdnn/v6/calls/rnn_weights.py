"""Where the matrices and biases of a network lie in its packed weights."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import Status
from graphdnn.operations import RnnSpec
from graphdnn.operations.rnn_spec import Block
from graphdnn.v6.arguments import Address
from graphdnn.v6.descriptor_checks import same_type
from graphdnn.v6.descriptor_values import Descriptor, Filter, Handle
from graphdnn.v6.enums import cudnnDataType_t, cudnnTensorFormat_t
from graphdnn.v6.errors import CudnnError, refuse_if
from graphdnn.v6.layouts import bytes_of, element_of
from graphdnn.v6.raw_memory import memory, raw
from graphdnn.v6.recurrent_descriptors import check_precision, network, step
from graphdnn.v6.recurrent_rules import ALIGNMENT, LINEAR_LAYER, OUTSIDE
from graphdnn.v6.registry import implements
from graphdnn.v6.releases import active, before


@implements("cudnnGetRNNParamsSize")
def params_size(handle: Handle, desc: Descriptor, x_desc: Descriptor, data_type: cudnnDataType_t) -> int:
    where, x = "cudnnGetRNNParamsSize", x_desc.value
    refuse_if(step(where, "xDesc", x))
    same_type(where, {"dataType": Filter(data_type, cudnnTensorFormat_t.CUDNN_TENSOR_NCHW, ()), "xDesc": x})
    check_precision(where, "xDesc", desc.value, x.data_type)
    return network(desc.value, x.dims[:1], x.dims[1], x.data_type).weight_count * bytes_of(data_type)


def _block(
    where: str, handle: Handle, desc: Descriptor, layer: int, x_desc: Descriptor, w_desc: Descriptor, w: Any, id: int,
    into: Descriptor, find: Callable[[RnnSpec], Callable[[int, int], Block]],
) -> Any:  # fmt: skip
    """The block, in place: an array where the weights are one, else its address; None where there is none."""
    x, weights = x_desc.value, w_desc.value
    refuse_if(step(where, "xDesc", x))
    check_precision(where, "xDesc", desc.value, x.data_type, Status.BAD_PARAM)
    same_type(where, {"xDesc": x, "wDesc": weights})
    rnn = network(desc.value, x.dims[:1], x.dims[1], x.data_type)
    for name, value, count in (("layer", layer, rnn.pseudo_layers), ("linLayerID", id, 2 * rnn.gates)):
        if not 0 <= value < count:
            raise CudnnError(LINEAR_LAYER.reject(where, name, value, expected=f"0 to {count - 1}"))
    block, size, count = find(rnn)(layer, id), bytes_of(x.data_type), prod(weights.dims)
    end = block.offset + block.rows * block.columns
    if end > count:
        raise CudnnError(OUTSIDE.reject(where, "wDesc", f"a block that ends at {end}", count=count))
    w = w if handle.device.kind == "cpu" else memory(where, "w", handle, w, count * size)
    address = w.address if isinstance(w, Address) else w.__array_interface__["data"][0]
    if address % size:
        raise CudnnError(ALIGNMENT.reject(where, "w", hex(address), size=size))
    shape = (block.rows, block.columns)
    # releases before 7.1 gave a count, later ones give rows and columns
    dims = (prod(shape), 1, 1) if active() and before("7.1") else (1, *shape) if block.rows else (0, 0, 0)
    into.value = Filter(x.data_type, cudnnTensorFormat_t.CUDNN_TENSOR_NCHW, dims)
    if not block.rows:
        return None
    if isinstance(w, Address):
        return w.address + block.offset * size
    dtype = ELEMENTS[element_of(x.data_type)[0]].numpy
    return raw(where, "w", w, count * size)[block.offset * size : end * size].view(dtype).reshape(shape)


@implements("cudnnGetRNNLinLayerMatrixParams", verified="PyTorch")
def matrix_params(handle: Handle, desc: Descriptor, layer: int, x_desc: Descriptor, w_desc: Descriptor, w: Any,
                  id: int, into: Descriptor) -> Any:  # fmt: skip
    """The matrix [rows, columns]; with the first layer's input skipped, None for its matrices."""
    where = "cudnnGetRNNLinLayerMatrixParams"
    return _block(where, handle, desc, layer, x_desc, w_desc, w, id, into, lambda rnn: rnn.matrix)


@implements("cudnnGetRNNLinLayerBiasParams", verified="PyTorch")
def bias_params(handle: Handle, desc: Descriptor, layer: int, x_desc: Descriptor, w_desc: Descriptor, w: Any,
                id: int, into: Descriptor) -> Any:  # fmt: skip
    """The bias [rows, 1]."""
    where = "cudnnGetRNNLinLayerBiasParams"
    return _block(where, handle, desc, layer, x_desc, w_desc, w, id, into, lambda rnn: rnn.bias)
