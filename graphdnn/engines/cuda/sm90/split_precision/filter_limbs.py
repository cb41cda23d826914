"""The launch that splits a filter into planes (split_filter_limbs.cu), and the map by which they are copied."""

from __future__ import annotations

from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import Kind
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

_THREADS = 256
_TOGETHER = 16  # channels of a thread
_UNIT = 32  # rows change places within so many
_ACCESS = 16  # bytes


class FilterPlanes:
    """A filter's planes: rows of the product, each tap by tap and block by block of a stage's channels."""

    def __init__(self, roles: Roles, spec: TensorSpec, kind: Kind) -> None:
        self.roles, self.spec, self.kind = roles, spec, kind
        self.groups, k, c, *filter_sizes = roles.space(spec).sizes
        self.filter_sizes, self.taps = tuple(filter_sizes), prod(filter_sizes)
        self.is_turned = roles.direction == "dgrad"  # rows are what the filter has next to each other
        self.rows, self.channels = (c, k) if self.is_turned else (k, c)
        self.padded_rows = -(-self.rows // _UNIT) * _UNIT
        self.blocks = -(-self.channels // kind.channels)

    @property
    def pitch(self) -> int:
        """Bytes of a row."""
        return self.taps * self.blocks * self.kind.filter_row

    @property
    def bytes(self) -> int:
        return self.groups * self.padded_rows * self.pitch

    def map(self, columns: int) -> TensorMap:
        line = self.kind.line
        sizes = (self.pitch, self.groups * self.padded_rows)
        return TensorMap(DataType.UINT8, sizes, (self.pitch,), box=(line, columns), row=line)

    @property
    def _strides(self) -> tuple[int, ...]:
        """Of groups, rows, channels and taps."""
        g, k, c, *taps = self.roles.space(self.spec).strides(self.spec)
        return (g, c, k, *taps) if self.is_turned else (g, k, c, *taps)

    @property
    def _is_packed(self) -> bool:
        """Sixteen channels are read in whole accesses."""
        size = ELEMENTS[self.spec.data_type].bytes
        strides = self._strides
        others = [s * size for s in (*strides[:2], *strides[3:])]
        promised = max(1, self.spec.byte_alignment)
        return strides[2] == 1 and promised % _ACCESS == 0 and not any(s % _ACCESS for s in others)

    def split(self, offset: int, neighbours: int) -> Launch:
        """``offset``: of the planes in scratch memory; ``neighbours``: columns that a thread of the product stores."""
        kind = self.kind
        parameters = Parameters()
        parameters.tensor("from", self.spec)
        parameters.scratch("planes", "unsigned char", offset)
        count = self.groups * self.padded_rows * self.taps * self.blocks * (kind.channels // _TOGETHER)
        parameters.table({
            "count": count, "groups": self.groups, "rows": self.rows, "padded_rows": self.padded_rows,
            "channels": self.channels, "blocks": self.blocks, "taps": self.taps,
        })  # fmt: skip
        parameters.integers("stride", self._strides)
        parameters.integers("filter", self.filter_sizes)
        element, gathered = STORAGE[self.spec.data_type], STORAGE[kind.a]
        text = kernel_text(
            f"filter_planes__{kind.b.name.lower()}_{kind.a.name.lower()}",
            ["pdl.cuh", "limbs.cuh", "split_filter_limbs.cu"],
            parameters=parameters.text,
            functions=[],
            constants={
                "THREADS": _THREADS, "PLANES": len(kind.planes[1]), "PLANE_BYTES": kind.plane_bytes,
                "CHANNELS": kind.channels, "FILTER_ROW": kind.filter_row, "VEC_N": neighbours,
                "PACKED": self._is_packed, "ROWS_FIRST": self._strides[1] == 1 and self._strides[2] != 1,
                "Element": element, "Gathered": gathered,
            },
        )  # fmt: skip
        return Launch(text, "split_filter_limbs", (-(-count // _THREADS), 1, 1), _THREADS, parameters.pack())
