"""Im2Col: what each position of a convolution reads, as a matrix."""

from __future__ import annotations

from math import prod
from typing import Any

from graphdnn.enums import Status
from graphdnn.operations import Patches
from graphdnn.tensors import packed_strides
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.calls.convolution import specification
from graphdnn.v6.calls.convolution_descriptor import output_dims
from graphdnn.v6.descriptor_checks import rank_in, same_type
from graphdnn.v6.descriptor_values import Descriptor, Handle
from graphdnn.v6.enums import cudnnDataType_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.layouts import element_of
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import FLOATING, GROUPS

_FLOATS = (cudnnDataType_t.CUDNN_DATA_FLOAT, cudnnDataType_t.CUDNN_DATA_HALF, cudnnDataType_t.CUDNN_DATA_DOUBLE)


@implements("cudnnIm2Col", "patches", "PyTorch")
def im2col(handle: Handle, x_desc: Descriptor, x: Any, w_desc: Descriptor, conv_desc: Descriptor, columns: Any) -> None:
    """columns[c * R * S + tap, n * P * Q + position]: rows are what one tap reads, 0 in the padding."""
    where, xv, wv, conv = "cudnnIm2Col", x_desc.value, w_desc.value, conv_desc.value

    def draw(draft: Draft) -> None:
        if xv.data_type not in _FLOATS:
            raise CudnnError(FLOATING.reject(where, "xDesc.dataType", xv.data_type.name))
        if conv.groups != 1:
            raise CudnnError(GROUPS.reject(where, "convDesc.groupCount", conv.groups))
        rank_in(where, "xDesc", len(xv.dims), 4, 4, Status.NOT_SUPPORTED)
        same_type(where, {"xDesc": xv, "wDesc": wv})
        n, _, *places = output_dims(where, conv, xv, wv)
        dims = (prod(wv.dims[1:]), n * prod(places))
        source = draft.memory(0, xv, "x")
        out = draft.view(1, element_of(xv.data_type)[0], dims, packed_strides(dims), "colBuffer")
        draft.add(Patches(x=source, y=out, taps=wv.dims[2:], conv=specification(conv, xv.data_type)))

    prepared(where, handle, (xv, wv, conv), draw)((x, columns))
