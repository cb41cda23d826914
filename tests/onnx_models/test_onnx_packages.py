"""Packages that ship models run unmodified with ``as_onnxruntime``, and say what they say with onnxruntime.

The packages are not installed with the tests: ``pip install magika rapidocr_onnxruntime`` lets them run.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx.reference", reason="the package onnx is not installed")

from graphdnn.onnx import as_onnxruntime

TEXTS = (
    b"import numpy as np\n\ndef f(x):\n    return np.sin(x)\n\nclass A:\n    pass\n" * 5,
    b"<html><body><p>A page with a paragraph.</p></body></html>" * 10,
)


def _magika() -> list[tuple[str, float]]:
    """The kinds of two files, with scores."""
    package = importlib.import_module("magika")
    found = [package.Magika().identify_bytes(text) for text in TEXTS]
    return [(str(result.output.label), float(result.score)) for result in found]


def _rapidocr() -> list[tuple[str, float]]:
    """Words that are drawn on an image, with scores."""
    package = importlib.import_module("rapidocr_onnxruntime")
    drawing = importlib.import_module("cv2")
    image = np.full((120, 420, 3), 255, np.uint8)
    drawing.putText(image, "graphs and plans", (20, 70), drawing.FONT_HERSHEY_SIMPLEX, 1.3, (0, 0, 0), 3)
    found, _ = package.RapidOCR()(image)
    return [(text, float(score)) for _, text, score in found]


def _fresh(package: str, use: Callable[[], Any]) -> Any:
    """Used as if it were imported for the first time."""
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        del sys.modules[name]
    return use()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("package", "use"), [("magika", _magika), ("rapidocr_onnxruntime", _rapidocr)])
def test_package(package: str, use: Callable[[], list[tuple[str, float]]]) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"the package {package} is not installed")
    expected = _fresh(package, use)
    with as_onnxruntime() as module:
        found = _fresh(package, use)
        assert sys.modules["onnxruntime"] is module
    assert [text for text, _ in found] == [text for text, _ in expected]
    np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], atol=1e-3)
