"""The Python package onnx, which is loaded when the first model is read."""

from __future__ import annotations

from typing import Any

from graphdnn.errors import NotSupported
from graphdnn.onnx.rules import NO_ONNX


def onnx_package() -> Any:
    """The package, with the parts that are used here.

    Raises:
        NotSupported: It is not installed.
    """
    try:
        import onnx
        import onnx.checker
        import onnx.inliner
        import onnx.reference
        import onnx.shape_inference
    except ImportError as error:
        raise NotSupported(NO_ONNX.reject("graphdnn.onnx", "onnx", "absent", detail=str(error))) from None
    return onnx
