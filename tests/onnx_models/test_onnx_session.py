"""The session of onnxruntime's shape, beside onnxruntime where it is installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from onnx_models import conv_relu, onnxruntime_results

pytest.importorskip("onnx.reference", reason="the package onnx is not installed")

from graphdnn import BadParam
from graphdnn.onnx import InferenceSession, as_onnxruntime

X = np.random.default_rng(5).standard_normal((1, 3, 16, 16)).astype(np.float32)


def test_session_has_the_answers_of_onnxruntime() -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    proto = conv_relu("batch")
    content = proto.SerializeToString()
    ours = InferenceSession(content, providers=["CPUExecutionProvider"])
    theirs = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for method in ("get_inputs", "get_outputs"):
        mine, others = getattr(ours, method)(), getattr(theirs, method)()
        assert [(a.name, a.type, a.shape) for a in mine] == [(a.name, a.type, a.shape) for a in others]
    assert ours.get_providers() == theirs.get_providers()
    assert ours.get_modelmeta().graph_name == theirs.get_modelmeta().graph_name
    np.testing.assert_allclose(ours.run(None, {"x": X})[0], theirs.run(None, {"x": X})[0], rtol=1e-4, atol=1e-4)


def test_binding_writes_in_place() -> None:
    session = InferenceSession(conv_relu().SerializeToString())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    (y,) = binding.copy_outputs_to_cpu()
    np.testing.assert_array_equal(y, session.run(["y"], {"x": X})[0])


def test_unknown_provider_is_refused() -> None:
    with pytest.raises(BadParam, match=r"onnx\.provider"):
        InferenceSession(conv_relu().SerializeToString(), providers=["NoneExecutionProvider"])


def test_packages_get_the_session_and_then_their_own() -> None:
    expected = onnxruntime_results(conv_relu(), {"x": X})[0]
    before = sys.modules.get("onnxruntime")
    with as_onnxruntime():
        import onnxruntime  # as a package would

        session = onnxruntime.InferenceSession(
            conv_relu().SerializeToString(), onnxruntime.SessionOptions(), ["CPUExecutionProvider"]
        )
        assert isinstance(session, InferenceSession)
        np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-4, atol=1e-4)
    assert sys.modules.get("onnxruntime") is before
