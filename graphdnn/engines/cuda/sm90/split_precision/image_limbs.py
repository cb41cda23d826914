"""The launch that splits an image into bfloat16 limbs (split_image_limbs.cu), and the tensor maps of the limbs."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphdnn.cuda.tensor_map import TensorMap
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.sm90.fitted_constants import LIMBS
from graphdnn.engines.cuda.sm90.tensor_maps import Im2colBox, im2col_map
from graphdnn.engines.cuda.sm90.tma_operands import Operand, channels_last_strides
from graphdnn.enums import DataType
from graphdnn.tensors import TensorSpec

_THREADS = 256
_CHANNELS_PER_THREAD = 8
_CTAS_PER_SM = 16  # the largest grid, for each multiprocessor
_PIXEL_AXES = (0, 3, 4, 5)  # N, D, H and W of an image's six coordinates


class ImageLimbs:
    """An NHWC image whose first ``count`` limbs are tensors of their own in the workspace."""

    def __init__(self, image: Operand, count: int) -> None:
        self.image, self.count = image, count
        bf16_spec = image.spec.model_copy(
            update={
                "data_type": DataType.BFLOAT16, "dims": image.spec.extents, "vector_count": 1,
                "vectorized_dimension": -1, "byte_alignment": 16, "is_virtual": False,
            }
        )  # fmt: skip
        self._limb = bf16_spec.model_copy(update={"strides": channels_last_strides(replace(image, spec=bf16_spec))})

    @property
    def _channels(self) -> int:
        _, groups, channels, *_ = self.image.sizes
        return groups * channels

    @property
    def _padded_channels(self) -> int:
        """Channels of a pixel in a limb tensor, with padding."""
        return -(-self._channels // _CHANNELS_PER_THREAD) * _CHANNELS_PER_THREAD

    @property
    def _pixels(self) -> int:
        return prod(self.image.sizes[j] for j in _PIXEL_AXES)

    @property
    def bytes(self) -> int:
        """Bytes of one limb tensor."""
        return 2 * self._padded_channels * self._pixels

    def seconds(self, device: DeviceSpec) -> float:
        moved = self.image.spec.bytes + self.count * self.bytes
        return device.launch + moved / (LIMBS.split_image_bandwidth_share * device.bandwidth)

    def split(self, steps: LaunchSequence) -> tuple[TensorSpec, ...]:
        """Adds the launch to ``steps`` and returns the limb tensors."""
        offset = steps.allocate(self.count * self.bytes)
        limbs = []
        for i in range(self.count):
            limbs.append(self._limb.model_copy(update={"uid": steps.new_uid()}))
            steps.workspace_offsets[limbs[-1].uid] = offset + i * self.bytes
        parameters = Parameters(steps.workspace_offsets)
        parameters.tensor("from", self.image.spec)
        parameters.workspace_pointer("limbs", "unsigned int", offset)
        count = self._pixels * self._padded_channels // _CHANNELS_PER_THREAD
        parameters.integer("count", count)
        parameters.integer("limb_words", self.bytes // 4)
        parameters.integer("channels", self._channels)
        parameters.integer("blocks", self._padded_channels // _CHANNELS_PER_THREAD)
        parameters.integers("size", [self.image.sizes[j] for j in _PIXEL_AXES])
        parameters.integers("stride", [self.image.strides[j] for j in _PIXEL_AXES])
        text = kernel_text(
            f"image_limbs__{self.image.spec.data_type.name.lower()}_{self.count}",
            ["split_image_limbs.cu"],
            parameters=parameters.text,
            functions=[],
            constants={"THREADS": _THREADS, "LIMBS": self.count, "Element": STORAGE[self.image.spec.data_type]},
        )
        blocks = min(-(-count // _THREADS), _CTAS_PER_SM * steps.device.sm_count)
        steps.add(Launch(text, "split_image_limbs", (blocks, 1, 1), _THREADS, parameters.pack()))
        return tuple(limbs)

    def map(self, limb: TensorSpec, spatial: int, box: Im2colBox, steps: tuple[int, ...], pixels: int) -> TensorMap:
        return im2col_map(replace(self.image, spec=limb), spatial, box, steps, pixels)
