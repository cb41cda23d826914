"""Layers of networks as they occur: name, extents, and what of each is measured."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True)
class Convolution:
    """Any number of spatial axes; a number where all of them are alike. ``measured``: direction.type.layout ..."""

    name: str
    measured: str
    n: int
    c: int
    extents: tuple[int, ...]
    k: int
    taps: tuple[int, ...]
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] = 0
    dilation: int = 1
    groups: int = 1
    activation: str = "relu"

    @property
    def x_dims(self) -> tuple[int, ...]:
        return self.n, self.c, *self.extents

    @property
    def w_dims(self) -> tuple[int, ...]:
        return self.k, self.c // self.groups, *self.taps

    @property
    def y_dims(self) -> tuple[int, ...]:
        rank = len(self.extents)
        axes = zip(self.extents, self.taps, *(numbers[-rank:] for numbers in self.geometry), strict=True)
        return self.n, self.k, *((e + 2 * p - d * (r - 1) - 1) // u + 1 for e, r, u, p, d in axes)

    @property
    def geometry(self) -> tuple[list[int], list[int], list[int]]:
        """Stride, padding and dilation, as PyTorch orders them; for one axis those of images of height 1."""
        rank = len(self.extents)
        lists = [list(v) if isinstance(v, tuple) else [v] * rank for v in (self.stride, self.padding, self.dilation)]
        stride, padding, dilation = (
            lists if rank > 1 else [[fill, *v] for fill, v in zip((1, 0, 1), lists, strict=True)]
        )
        return stride, padding, dilation

    @property
    def flops(self) -> int:
        return 2 * prod(self.y_dims) * prod(self.w_dims[1:])


@dataclass(frozen=True, slots=True)
class Product:
    """``activation``: nothing, "bias", or what follows the bias. ``transposed``: b lies as [n, k]."""

    name: str
    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    activation: str = ""
    transposed: bool = True
    kind: str = "f16"

    @property
    def a_dims(self) -> tuple[int, ...]:
        return *self.batch, self.m, self.k

    @property
    def b_dims(self) -> tuple[int, ...]:
        return *self.batch, self.k, self.n

    @property
    def b_strides(self) -> tuple[int, ...]:
        outer = [prod(self.batch[i + 1 :]) * self.k * self.n for i in range(len(self.batch))]
        return *outer, 1, self.k


ALL = "fprop dgrad wgrad"
F, D, W = "fprop", "dgrad", "wgrad"
_C = Convolution
CONVOLUTIONS = (
    # ResNet-50 at other batches
    _C("r50_stem_b8", F, 8, 3, (224, 224), 64, (7, 7), 2, 3),
    _C("r50_stem_b256", "fprop wgrad", 256, 3, (224, 224), 64, (7, 7), 2, 3),
    _C("r50_c2_3x3_b1", F, 1, 64, (56, 56), 64, (3, 3), 1, 1),
    _C("r50_c2_1x1b_b1", F, 1, 64, (56, 56), 256, (1, 1)),
    _C("r50_c2_3x3_b256", ALL, 256, 64, (56, 56), 64, (3, 3), 1, 1),
    _C("r50_proj3_b32", ALL, 32, 256, (56, 56), 512, (1, 1), 2),
    _C("r50_c4_3x3_b1", F, 1, 256, (14, 14), 256, (3, 3), 1, 1),
    _C("r50_c4_3x3_b8", ALL, 8, 256, (14, 14), 256, (3, 3), 1, 1),
    _C("r50_c4_3x3s2_b32", ALL, 32, 256, (28, 28), 256, (3, 3), 2, 1),
    _C("r50_c5_3x3_b1", F, 1, 512, (7, 7), 512, (3, 3), 1, 1),
    _C("r50_c5_3x3_b8", ALL, 8, 512, (7, 7), 512, (3, 3), 1, 1),
    _C("r50_proj5_b32", "fprop dgrad wgrad fprop.tf32", 32, 1024, (14, 14), 2048, (1, 1), 2),
    _C("r50_c5_1x1b_b32", ALL, 32, 512, (7, 7), 2048, (1, 1)),
    _C("r50_c5_1x1a_b8", ALL, 8, 2048, (7, 7), 512, (1, 1)),
    _C("r50_c5_1x1b_b256", ALL, 256, 512, (7, 7), 2048, (1, 1)),
    # groups: ResNeXt, RegNet
    _C("resnext_8", ALL, 64, 256, (28, 28), 256, (3, 3), 1, 1, 1, 32),
    _C("resnext_16", ALL, 64, 512, (14, 14), 512, (3, 3), 1, 1, 1, 32),
    _C("resnext_32", ALL, 64, 1024, (7, 7), 1024, (3, 3), 1, 1, 1, 32),
    _C("resnext_8s2", ALL, 64, 256, (56, 56), 256, (3, 3), 2, 1, 1, 32),
    _C("regnet_24", ALL, 64, 120, (28, 28), 120, (3, 3), 1, 1, 1, 5),
    _C("regnet_48", ALL, 64, 432, (14, 14), 432, (3, 3), 1, 1, 1, 9),
    _C("regnet_112", ALL, 32, 448, (28, 28), 448, (3, 3), 1, 1, 1, 4),
    # MobileNet, EfficientNet
    _C("mobile_first", ALL, 32, 3, (224, 224), 32, (3, 3), 2, 1, activation="swish"),
    _C("mobile_16_96", ALL, 32, 16, (112, 112), 96, (1, 1)),
    _C("mobile_24_144", ALL, 32, 24, (56, 56), 144, (1, 1)),
    _C("mobile_144_24", ALL, 32, 144, (56, 56), 24, (1, 1)),
    _C("mobile_240_40", ALL, 32, 240, (28, 28), 40, (1, 1)),
    _C("mobile_112_672", "fprop dgrad wgrad fprop.f16.nchw fprop.tf32", 32, 112, (14, 14), 672, (1, 1)),
    _C("mobile_672_192", ALL, 32, 672, (7, 7), 192, (1, 1)),
    _C("mobile_dw3s2_96", ALL, 32, 96, (112, 112), 96, (3, 3), 2, 1, 1, 96),
    _C("mobile_dw5_240", ALL, 32, 240, (28, 28), 240, (5, 5), 1, 2, 1, 240),
    _C("mobile_dw5_672", "fprop dgrad wgrad fprop.f16.nchw", 32, 672, (14, 14), 672, (5, 5), 1, 2, 1, 672),
    _C("mobile_dw5s2_672", ALL, 32, 672, (14, 14), 672, (5, 5), 2, 2, 1, 672),
    _C("mobile_dw3_1152", ALL, 32, 1152, (7, 7), 1152, (3, 3), 1, 1, 1, 1152),
    _C("mobile_dw3_b1", F, 1, 144, (56, 56), 144, (3, 3), 1, 1, 1, 144),
    # ConvNeXt, RepLKNet, ViT
    _C("convnext_7_384", ALL, 32, 384, (14, 14), 384, (7, 7), 1, 3, 1, 384),
    _C("convnext_7_768", F, 32, 768, (7, 7), 768, (7, 7), 1, 3, 1, 768),
    _C("convnext_patch4", "fprop wgrad", 32, 3, (224, 224), 96, (4, 4), 4),
    _C("convnext_down", ALL, 32, 96, (56, 56), 192, (2, 2), 2),
    _C("replk_31", F, 8, 128, (56, 56), 128, (31, 31), 1, 15, 1, 128),
    _C("replk_13", F, 8, 256, (28, 28), 256, (13, 13), 1, 6, 1, 256),
    _C("vit_patch16", "fprop wgrad", 32, 3, (224, 224), 768, (16, 16), 16),
    # diffusion: U-Net and autoencoder
    _C("sd_in", F, 2, 4, (64, 64), 320, (3, 3), 1, 1),
    _C("sd_320_b2", ALL, 2, 320, (64, 64), 320, (3, 3), 1, 1),
    _C("sd_640_b2", "fprop dgrad wgrad fprop.tf32", 2, 640, (32, 32), 640, (3, 3), 1, 1),
    _C("sd_1280_16_b2", ALL, 2, 1280, (16, 16), 1280, (3, 3), 1, 1),
    _C("sd_1280_8_b2", ALL, 2, 1280, (8, 8), 1280, (3, 3), 1, 1),
    _C("sd_1920_640", ALL, 2, 1920, (32, 32), 640, (3, 3), 1, 1),
    _C("sd_2560_1280", F, 4, 2560, (16, 16), 1280, (3, 3), 1, 1),
    _C("sd_down_320", ALL, 4, 320, (64, 64), 320, (3, 3), 2, 1),
    _C("sd_960_320_1x1", F, 2, 960, (64, 64), 320, (1, 1)),
    _C("sd_out", "fprop dgrad", 2, 320, (64, 64), 4, (3, 3), 1, 1),
    _C("vae_128", "fprop fprop.f16.nchw", 1, 128, (512, 512), 128, (3, 3), 1, 1),
    _C("vae_256_128", F, 1, 256, (512, 512), 128, (3, 3), 1, 1),
    _C("vae_512_64", F, 1, 512, (64, 64), 512, (3, 3), 1, 1),
    _C("vae_out", F, 1, 128, (512, 512), 3, (3, 3), 1, 1),
    # detection and segmentation
    _C("yolo_255", ALL, 16, 512, (20, 20), 255, (1, 1)),
    _C("yolo_80", ALL, 16, 80, (80, 80), 80, (3, 3), 1, 1, activation="swish"),
    _C("yolo_160s2", ALL, 16, 80, (80, 80), 160, (3, 3), 2, 1, activation="swish"),
    _C("yolo_first", F, 16, 3, (640, 640), 16, (3, 3), 2, 1, activation="swish"),
    _C("deeplab_6", F, 8, 2048, (33, 33), 256, (3, 3), 1, 6, 6),
    _C("deeplab_18", ALL, 8, 2048, (33, 33), 256, (3, 3), 1, 18, 18),
    # one axis: audio
    _C("audio_512", "fprop dgrad wgrad fprop.f16.nchw", 8, 512, (16000,), 512, (3,), 1, 1),
    _C("audio_64d16", "fprop dgrad wgrad fprop.f16.nchw", 8, 64, (16000,), 64, (3,), 1, 16, 16),
    _C("hifigan_11", "fprop fprop.f16.nchw", 1, 128, (8192,), 128, (11,), 1, 25, 5),
    _C("conformer_dw31", "fprop fprop.f16.nchw", 16, 512, (1000,), 512, (31,), 1, 15, 1, 512),
    # three axes: video, volumes
    _C("volume_32", "fprop dgrad wgrad fprop.f16.nchw", 2, 32, (64, 64, 64), 32, (3, 3, 3), 1, 1),
    _C("volume_first", "fprop wgrad", 2, 1, (128, 128, 128), 32, (3, 3, 3), 1, 1),
    _C("c3d_128", ALL, 8, 64, (16, 56, 56), 128, (3, 3, 3), 1, 1),
    _C("volume_down", ALL, 2, 32, (64, 64, 64), 64, (3, 3, 3), 2, 1),
    _C("r2plus1_space", F, 8, 64, (16, 56, 56), 144, (1, 3, 3), 1, (0, 1, 1)),
    _C("r2plus1_time", F, 8, 144, (16, 56, 56), 64, (3, 1, 1), 1, (1, 0, 0)),
    # transposed convolutions are data gradients
    _C("dcgan_4x4s2", D, 64, 128, (32, 32), 256, (4, 4), 2, 1),
    _C("dcgan_out", D, 64, 3, (64, 64), 64, (4, 4), 2, 1),
    _C("unet_up2x2", D, 4, 256, (128, 128), 512, (2, 2), 2),
)
PRODUCTS = (
    Product("linear_1x4096x4096", (), 1, 4096, 4096, "bias"),
    Product("linear_16x11008x4096", (), 16, 11008, 4096, "bias"),
    Product("linear_64x4096x4096", (), 64, 4096, 4096, "gelu"),
    Product("linear_128x2304x768", (), 128, 2304, 768, "bias"),
    Product("linear_512x3072x768", (), 512, 3072, 768, "gelu"),
    Product("linear_8192x4096x1024", (), 8192, 4096, 1024, "gelu"),
    Product("linear_8192x1024x4096", (), 8192, 1024, 4096, "bias"),
    Product("linear_32768x3072x768", (), 32768, 3072, 768, "gelu"),
    Product("linear_32768x768x3072", (), 32768, 768, 3072, "bias"),
    Product("linear_256x1000x2048", (), 256, 1000, 2048, "bias"),
    Product("linear_8192x4096x1024_tf32", (), 8192, 4096, 1024, "bias", kind="tf32"),
    Product("scores_128x64", (32, 12), 128, 128, 64),
    Product("scores_1024x64", (4, 16), 1024, 1024, 64),
    Product("values_128x64", (32, 12), 128, 64, 128, transposed=False),
    Product("values_1024x64", (4, 16), 1024, 64, 1024, transposed=False),
)
