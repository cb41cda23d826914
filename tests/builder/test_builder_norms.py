"""Normalizations of the builder as operations: what fuses with what computes their operand."""

from __future__ import annotations

import numpy as np
import pytest

from graphdnn import BadParam, Graph


def test_batch_norm_with_given_statistics_fuses_with_a_convolution() -> None:
    g = Graph("layer", io_data_type="float32")
    x, w = g.tensor([2, 4, 6, 6], name="x"), g.tensor([8, 4, 3, 3], name="w")
    mean, inv, scale, bias = (g.tensor([1, 8, 1, 1], name=n) for n in ("mean", "inv", "scale", "bias"))
    sums = g.conv_fprop(x, w, padding=[1, 1])
    y = g.relu(g.batchnorm_inference(sums, mean, inv, scale, bias, name="bn")).set_output(True)
    (kernel,) = g.fused
    assert [op.label() for op in kernel.operations][1:5] == [
        "sub 'bn::centered'", "mul 'bn::normalized'", "mul 'bn::scaled'", "add 'bn'",
    ]  # fmt: skip

    rng = np.random.default_rng(0)
    data = {t: rng.standard_normal(t.get_dim()).astype(np.float32) for t in (x, w, mean, inv, scale, bias)}
    found = g.run(data)[y]
    plain = Graph("sums", io_data_type="float32")
    px, pw = plain.tensor([2, 4, 6, 6]), plain.tensor([8, 4, 3, 3])
    py = plain.conv_fprop(px, pw, padding=[1, 1]).set_output(True)
    conv = plain.run({px: data[x], pw: data[w]})[py].astype(np.float64)
    expected = np.maximum((conv - data[mean]) * data[inv] * data[scale] + data[bias], 0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_it_is_done_as_a_whole_or_leaves_no_trace() -> None:
    g = Graph("layer", io_data_type="float32")
    x, mean = g.tensor([2, 4, 6, 6]), g.tensor([1, 4, 1, 1])
    with pytest.raises(BadParam):
        g.batchnorm_inference(x, mean, mean, mean, Graph("other").tensor([1, 4, 1, 1]))
    assert repr(g) == "<Graph 'layer': 0 operations>"
