"""The convolution layers that are measured: ResNet-50's, VGG's, a diffusion model's, and the cheap ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Protocol


class Shape(Protocol):
    """What problems ask of a convolution; ``c`` and ``k`` count the channels of all groups."""

    @property
    def name(self) -> str: ...
    @property
    def k(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def x_dims(self) -> tuple[int, ...]: ...
    @property
    def w_dims(self) -> tuple[int, ...]: ...
    @property
    def y_dims(self) -> tuple[int, ...]: ...
    @property
    def geometry(self) -> tuple[list[int], list[int], list[int]]: ...
    @property
    def flops(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Layer:
    """A square-stride convolution; ``c`` and ``k`` count the channels of all groups."""

    name: str
    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    stride: int
    padding: int
    groups: int = 1

    @property
    def x_dims(self) -> tuple[int, int, int, int]:
        return self.n, self.c, self.h, self.w

    @property
    def w_dims(self) -> tuple[int, int, int, int]:
        return self.k, self.c // self.groups, self.r, self.s

    @property
    def y_dims(self) -> tuple[int, int, int, int]:
        p, q = ((e + 2 * self.padding - f) // self.stride + 1 for e, f in ((self.h, self.r), (self.w, self.s)))
        return self.n, self.k, p, q

    @property
    def geometry(self) -> tuple[list[int], list[int], list[int]]:
        """Stride, padding and dilation, as PyTorch orders them."""
        return [self.stride] * 2, [self.padding] * 2, [1, 1]

    @property
    def flops(self) -> int:
        """A multiply-add counts two; padding counts as if it were data."""
        return 2 * prod(self.y_dims) * prod(self.w_dims[1:])


def _layers(rows: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, Layer]:
    return {name: Layer(name, *numbers) for name, numbers in rows}


LAYERS = _layers((  # N, C, H, W, K, R, S, stride, padding, groups
    ("stem", (64, 3, 224, 224, 64, 7, 7, 2, 3)),
    ("c2_1x1a", (64, 64, 56, 56, 64, 1, 1, 1, 0)),
    ("c2_3x3", (64, 64, 56, 56, 64, 3, 3, 1, 1)),
    ("c2_1x1b", (64, 64, 56, 56, 256, 1, 1, 1, 0)),
    ("c3_3x3s2", (64, 128, 56, 56, 128, 3, 3, 2, 1)),
    ("c3_3x3", (64, 128, 28, 28, 128, 3, 3, 1, 1)),
    ("c3_1x1b", (64, 128, 28, 28, 512, 1, 1, 1, 0)),
    ("c4_3x3", (64, 256, 14, 14, 256, 3, 3, 1, 1)),
    ("c4_1x1b", (64, 256, 14, 14, 1024, 1, 1, 1, 0)),
    ("c5_3x3", (64, 512, 7, 7, 512, 3, 3, 1, 1)),
    ("c3_3x3_b1", (1, 128, 28, 28, 128, 3, 3, 1, 1)),
    ("vgg_3x3_256", (32, 256, 56, 56, 256, 3, 3, 1, 1)),
    ("sd_320_64", (8, 320, 64, 64, 320, 3, 3, 1, 1)),
    ("sd_1280_16", (8, 1280, 16, 16, 1280, 3, 3, 1, 1)),
    ("dw_mbv2", (64, 144, 56, 56, 144, 3, 3, 1, 1, 144)),
    ("dw_convnext7", (64, 192, 56, 56, 192, 7, 7, 1, 3, 192)),
    ("resnext_g32", (64, 128, 56, 56, 128, 3, 3, 1, 1, 32)),
))  # fmt: skip

DIRECT_LAYERS = _layers((  # bound by memory: few channels in each sum
    ("dw3", (64, 144, 56, 56, 144, 3, 3, 1, 1, 144)),
    ("dw3s2", (64, 144, 56, 56, 144, 3, 3, 2, 1, 144)),
    ("dw5", (64, 144, 56, 56, 144, 5, 5, 1, 2, 144)),
    ("dw7", (64, 192, 56, 56, 192, 7, 7, 1, 3, 192)),
    ("g4", (64, 128, 56, 56, 128, 3, 3, 1, 1, 32)),
    ("stem", (64, 3, 224, 224, 64, 7, 7, 2, 3)),
))  # fmt: skip

# Classes whose kernel the model chooses, and that no table of layers has.
MORE_DIRECT_LAYERS = _layers((
    ("g4_5x5", (64, 128, 56, 56, 128, 5, 5, 1, 2, 32)),
    ("g4_7x7", (32, 128, 28, 28, 128, 7, 7, 1, 3, 32)),
    ("g2_3x3", (64, 128, 56, 56, 128, 3, 3, 1, 1, 64)),
    ("g8_3x3", (64, 128, 56, 56, 128, 3, 3, 1, 1, 16)),
    ("g8_3x3s2", (64, 256, 56, 56, 256, 3, 3, 2, 1, 32)),
    ("g4_3x3s2", (64, 128, 56, 56, 128, 3, 3, 2, 1, 32)),
    ("g4_5x5s2", (32, 256, 28, 28, 256, 5, 5, 2, 2, 64)),
    ("dw9", (64, 144, 56, 56, 144, 9, 9, 1, 4, 144)),
    ("dw9_14", (64, 144, 14, 14, 144, 9, 9, 1, 4, 144)),
    ("dw4", (64, 144, 56, 56, 144, 4, 4, 1, 1, 144)),
    ("dw6", (32, 192, 28, 28, 192, 6, 6, 1, 2, 192)),
    ("dw7s2", (64, 192, 56, 56, 192, 7, 7, 2, 3, 192)),
    ("dw5s2", (64, 144, 56, 56, 144, 5, 5, 2, 2, 144)),
    ("dw5_7", (8, 128, 7, 7, 128, 5, 5, 1, 2, 128)),
    ("dw5_14", (8, 480, 14, 14, 480, 5, 5, 1, 2, 480)),
    ("dw7_14", (1, 512, 14, 14, 512, 7, 7, 1, 3, 512)),
    ("dw7_28", (32, 192, 28, 28, 192, 7, 7, 1, 3, 192)),
    ("dw7_56", (8, 96, 56, 56, 96, 7, 7, 1, 3, 96)),
    ("g8_28", (64, 256, 28, 28, 256, 3, 3, 1, 1, 32)),
))  # fmt: skip

# An image is found in 30 others by correlating with it: filters as large as the image.
TEMPLATE_MATCHING = Layer("template", 1, 1, 100, 100, 30, 100, 100, 1, 30)
