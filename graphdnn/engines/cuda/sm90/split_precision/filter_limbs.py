"""The launch that splits a filter into limbs (split_filter_limbs.cu), and the tensor map of the limbs."""

from __future__ import annotations

from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import LimbScheme
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

_THREADS = 256
_CHANNELS_PER_THREAD = 16
_ROW_UNIT = 32  # rows are permuted within units of this size
_VEC_BYTES = 16


class FilterLimbs:
    """A filter's limbs in memory. A row has its taps, a tap has blocks of a stage's channels, a block has all limbs."""

    def __init__(self, roles: Roles, spec: TensorSpec, scheme: LimbScheme) -> None:
        self.roles, self.spec, self.scheme = roles, spec, scheme
        self.groups, k, c, *filter_sizes = roles.space(spec).sizes
        self.filter_sizes, self.taps = tuple(filter_sizes), prod(filter_sizes)
        self.rows_are_c = roles.direction == "dgrad"  # a dgrad computes input channels
        self.rows, self.channels = (c, k) if self.rows_are_c else (k, c)
        self.padded_rows = -(-self.rows // _ROW_UNIT) * _ROW_UNIT
        self.blocks = -(-self.channels // scheme.channels)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row with all its taps and limbs."""
        return self.taps * self.blocks * self.scheme.filter_row_bytes

    @property
    def bytes(self) -> int:
        return self.groups * self.padded_rows * self.row_bytes

    def map(self, columns: int) -> TensorMap:
        swizzle = self.scheme.swizzle_bytes
        sizes = (self.row_bytes, self.groups * self.padded_rows)
        return TensorMap(DataType.UINT8, sizes, (self.row_bytes,), box=(swizzle, columns), row=swizzle)

    @property
    def _strides(self) -> tuple[int, ...]:
        """Strides of groups, rows, channels and taps, in elements."""
        g, k, c, *taps = self.roles.space(self.spec).strides(self.spec)
        return (g, c, k, *taps) if self.rows_are_c else (g, k, c, *taps)

    @property
    def _is_vectorizable(self) -> bool:
        """Whether 16 channels are contiguous and aligned, so that a thread reads vectors of channels."""
        size = ELEMENTS[self.spec.data_type].bytes
        strides = self._strides
        other_strides = [s * size for s in (*strides[:2], *strides[3:])]
        alignment = max(1, self.spec.byte_alignment)
        return strides[2] == 1 and alignment % _VEC_BYTES == 0 and not any(s % _VEC_BYTES for s in other_strides)

    def split(self, offset: int, vec_n: int) -> Launch:
        """``offset``: bytes of the workspace before the limbs; ``vec_n``: contiguous columns that a consumer stores."""
        scheme = self.scheme
        parameters = Parameters()
        parameters.tensor("from", self.spec)
        parameters.workspace_pointer("limbs", "unsigned char", offset)
        count = self.groups * self.padded_rows * self.taps * self.blocks * (scheme.channels // _CHANNELS_PER_THREAD)
        parameters.table({
            "count": count, "groups": self.groups, "rows": self.rows, "padded_rows": self.padded_rows,
            "channels": self.channels, "blocks": self.blocks, "taps": self.taps,
        })  # fmt: skip
        parameters.integers("stride", self._strides)
        parameters.integers("filter", self.filter_sizes)
        element, im2col_element = STORAGE[self.spec.data_type], STORAGE[scheme.a]
        text = kernel_text(
            f"filter_limbs__{scheme.b.name.lower()}_{scheme.a.name.lower()}",
            ["split_filter_limbs.cu"],
            parameters=parameters.text,
            functions=[],
            constants={
                "THREADS": _THREADS, "LIMBS": len(scheme.limbs[1]), "LIMB_BYTES": scheme.limb_bytes,
                "CHANNELS": scheme.channels, "FILTER_ROW_BYTES": scheme.filter_row_bytes, "VEC_N": vec_n,
                "PACKED": self._is_vectorizable, "ROWS_FIRST": self._strides[1] == 1 and self._strides[2] != 1,
                "Element": element, "Im2colElement": im2col_element,
            },
        )  # fmt: skip
        return Launch(text, "split_filter_limbs", (-(-count // _THREADS), 1, 1), _THREADS, parameters.pack())
