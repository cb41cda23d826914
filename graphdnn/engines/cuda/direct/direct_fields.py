"""Kernel parameters that several direct convolutions have."""

from __future__ import annotations

from graphdnn.operations.conv_problem import ConvProblem


def image_fields(name: str, strides: tuple[int, ...]) -> dict[str, int]:
    """The strides of images, rows and columns, in elements. ``strides``: the strides of (n, channel, h, w)."""
    n, _, h, w = strides
    return {f"{name}_n": n, f"{name}_h": h, f"{name}_w": w}


def volume_fields(name: str, strides: tuple[int, ...]) -> dict[str, int]:
    """The strides of a depthwise convolution's image, whose channels are the groups. ``strides``: the strides of
    (n, group, channel, d, h, w).
    """
    n, group, _, d, h, w = strides
    return {f"{name}_n": n, f"{name}_c": group, f"{name}_d": d, f"{name}_h": h, f"{name}_w": w}


def filter_fields(strides: tuple[int, ...]) -> dict[str, int]:
    """The strides of the filter; ``strides`` are in the order (k, c, r, s)."""
    return {f"filter_{axis}": stride for axis, stride in zip("kcrs", strides, strict=True)}


def first_fields(p: ConvProblem, *, is_dgrad: bool) -> dict[str, int]:
    """The first row and column of the sliding window, in the image and in the output."""
    (stride_h, stride_w), (pad_h, pad_w) = p.stride, p.pre_padding
    if not is_dgrad:
        return {"in_row": -pad_h, "in_column": -pad_w, "out_row": 0, "out_column": 0}
    return {
        "in_row": pad_h // stride_h, "in_column": pad_w // stride_w,
        "out_row": -(pad_h % stride_h), "out_column": -(pad_w % stride_w),
    }  # fmt: skip
