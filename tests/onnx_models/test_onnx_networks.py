"""The "real" networks of ONNX's tests with weights drawn from a seed, beside onnxruntime's CPU provider."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx.reference", reason="the package onnx is not installed")

from onnx_models import onnxruntime_results
from onnx_networks import NETWORKS, network

import graphdnn.onnx

# The others have more work: seconds each.
QUICK = ("squeezenet", "shufflenet", "inception_v1", "resnet50")


def _difference(name: str) -> float:
    """The largest difference from onnxruntime, as a share of the largest value."""
    proto = network(name)
    model = graphdnn.onnx.load(proto)
    (info,) = model.inputs
    x = np.random.default_rng(1).standard_normal(info.shape).astype(np.float32)
    (found,) = model.run({info.name: x}).values()
    (expected,) = onnxruntime_results(proto, {info.name: x})
    assert np.isfinite(expected).all()
    assert expected.std() > 1e-3 * np.abs(expected).max(), "the network computes nothing"
    assert len(model.program({info.name: x}).plans) == 1, "the network is one graph"
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("name", QUICK)
def test_network(name: str) -> None:
    assert _difference(name) < 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in QUICK])
def test_large_network(name: str) -> None:
    assert _difference(name) < 1e-4


def test_another_weight_is_seen() -> None:
    """The comparison rejects: one filter of the last convolution is another one."""
    proto = network("squeezenet")
    wrong = network("squeezenet", seed=1)
    (info,) = graphdnn.onnx.load(proto).inputs
    x = np.random.default_rng(1).standard_normal(info.shape).astype(np.float32)
    (found,) = graphdnn.onnx.load(wrong).run({info.name: x}).values()
    (expected,) = onnxruntime_results(proto, {info.name: x})
    assert np.abs(found - expected).max() > 1e-2 * np.abs(expected).max()
