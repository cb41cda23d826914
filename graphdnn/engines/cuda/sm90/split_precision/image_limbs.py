"""The launch that splits an image into planes of 16-bit floats (split_image_limbs.cu), and their maps."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.sm90.tensor_maps import Walk, image_map
from graphdnn.engines.cuda.sm90.tma_operands import Operand, channels_first
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

_THREADS = 256
_TOGETHER = 8  # channels of a thread
_BLOCKS = 16  # on a multiprocessor, that take turns at most
_PACE = 0.8  # of the bandwidth
_PIXEL_AXES = (0, 3, 4, 5)  # of an image's coordinates


class ImagePlanes:
    """An image with channels last, whose first ``count`` planes are tensors of their own in scratch memory."""

    def __init__(self, image: Operand, count: int) -> None:
        self.image, self.count = image, count
        narrow = image.spec.model_copy(
            update={
                "data_type": DataType.BFLOAT16, "dims": image.spec.extents, "vector_count": 1,
                "vectorized_dimension": -1, "byte_alignment": 16, "is_virtual": False,
            }
        )  # fmt: skip
        self._plane = narrow.model_copy(update={"strides": channels_first(replace(image, spec=narrow))})

    @property
    def _channels(self) -> int:
        _, groups, channels, *_ = self.image.sizes
        return groups * channels

    @property
    def _row(self) -> int:
        """Elements of a pixel in a plane."""
        return -(-self._channels // _TOGETHER) * _TOGETHER

    @property
    def _pixels(self) -> int:
        return prod(self.image.sizes[j] for j in _PIXEL_AXES)

    @property
    def bytes(self) -> int:
        """Of one plane."""
        return 2 * self._row * self._pixels

    def seconds(self, device: DeviceSpec) -> float:
        return device.launch + (self.image.spec.bytes + self.count * self.bytes) / (_PACE * device.bandwidth)

    def split(self, steps: LaunchSequence) -> tuple[TensorSpec, ...]:
        """Adds the launch; returns the planes."""
        offset = steps.allocate(self.count * self.bytes)
        planes = []
        for i in range(self.count):
            planes.append(self._plane.model_copy(update={"uid": steps.new_uid()}))
            steps.workspace_offsets[planes[-1].uid] = offset + i * self.bytes
        parameters = Parameters(steps.workspace_offsets)
        parameters.tensor("from", self.image.spec)
        parameters.scratch("planes", "unsigned int", offset)
        count = self._pixels * self._row // _TOGETHER
        parameters.integer("count", count)
        parameters.integer("plane", self.bytes // 4)  # words
        parameters.integer("channels", self._channels)
        parameters.integer("blocks", self._row // _TOGETHER)
        parameters.integers("size", [self.image.sizes[j] for j in _PIXEL_AXES])
        parameters.integers("stride", [self.image.strides[j] for j in _PIXEL_AXES])
        text = kernel_text(
            f"image_planes__{self.image.spec.data_type.name.lower()}_{self.count}",
            ["pdl.cuh", "limbs.cuh", "split_image_limbs.cu"],
            parameters=parameters.text,
            functions=[],
            constants={"THREADS": _THREADS, "PLANES": self.count, "Element": STORAGE[self.image.spec.data_type]},
        )
        blocks = min(-(-count // _THREADS), _BLOCKS * steps.device.sm_count)
        steps.add(Launch(text, "split_image_limbs", (blocks, 1, 1), _THREADS, parameters.pack()))
        return tuple(planes)

    def map(self, plane: TensorSpec, spatial: int, walk: Walk, steps: tuple[int, ...], pixels: int) -> TensorMap:
        return image_map(replace(self.image, spec=plane), spatial, walk, steps, pixels)
