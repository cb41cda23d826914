"""``Graph.run`` returns arrays of the library that it is given, whatever the element type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import graphdnn
from graphdnn import BadParam

TYPES = ("float64", "float32", "float16", "bfloat16", "int8", "int32", "int64")


class Kind(NamedTuple):
    """A kind of array: how one is made of NumPy's, and what its results must be."""

    make: Callable[[Any], Any]
    module: str
    types: tuple[str, ...] = TYPES


class Exchanged:
    """An object that has nothing but DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _tensor(array: Any) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _parameter(array: Any) -> Any:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return torch.nn.Parameter(_tensor(array))


def _jax(array: Any) -> Any:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    return jax.numpy.asarray(array)


FLOATS = ("float64", "float32", "float16", "bfloat16")
KINDS = {
    "numpy": Kind(np.asarray, "numpy"),
    "dlpack": Kind(Exchanged, "numpy", tuple(t for t in TYPES if t != "bfloat16")),
    "torch": Kind(_tensor, "torch"),
    "parameter": Kind(_parameter, "torch", FLOATS),
    "jax": Kind(_jax, "jaxlib", tuple(t for t in TYPES if "64" not in t)),  # JAX narrows 64 bits unless told otherwise
}
# JAX starts threads, and Python warns of each later fork of the process.
CASES = [
    pytest.param(name, t, marks=pytest.mark.long if name == "jax" else ())
    for name, kind in KINDS.items()
    for t in kind.types
]


def _numpy(array: Any) -> Any:
    """Any result as float64."""
    if type(array).__module__ == "torch":
        return array.double().numpy()
    return np.asarray(array).astype(np.float64)


def convolution(data_type: str) -> graphdnn.Graph:
    graph = graphdnn.Graph(io_data_type=data_type, device="cpu")
    x, w = graph.tensor([2, 4, 6, 5]).set_name("x"), graph.tensor([3, 4, 3, 3]).set_name("w")
    graph.conv_fprop(x, w, padding=1).set_name("y").set_output(True)
    return graph


@pytest.mark.parametrize(("name", "data_type"), CASES)
def test_results_are_arrays_of_the_library_of_the_inputs(name: str, data_type: str) -> None:
    kind, graph = KINDS[name], convolution(data_type)
    rng = np.random.default_rng(7)
    dtype = np.dtype(getattr(ml_dtypes, data_type, data_type))
    x, w = (rng.integers(-2, 3, shape).astype(dtype) for shape in ([2, 4, 6, 5], [3, 4, 3, 3]))
    found = graph.run({"x": kind.make(x), "w": kind.make(w)})["y"]
    assert type(found).__module__.partition(".")[0] == kind.module
    assert str(found.dtype).removeprefix("torch.") == data_type
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    np.testing.assert_array_equal(_numpy(found), np.einsum("nchwrs,kcrs->nkhw", windows, w.astype(np.float64)))


def test_results_are_found_by_tensor_uid_and_name() -> None:
    graph = convolution("float32")
    results = graph.run({"x": np.ones((2, 4, 6, 5), np.float32), "w": np.ones((3, 4, 3, 3), np.float32)})
    (tensor,) = results
    assert results[tensor] is results[tensor.get_uid()] is results["y"]
    for wrong in ("x", "no name", 12345, None):
        with pytest.raises(KeyError):
            results[wrong]


def test_one_tensor_of_pytorch_decides() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    graph = convolution("float32")
    results = graph.run({"x": np.ones((2, 4, 6, 5), np.float32), "w": torch.ones(3, 4, 3, 3)})
    assert type(results["y"]) is torch.Tensor


def test_results_of_pytorch_have_the_strides_and_the_alignment_of_the_graph() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    graph = graphdnn.Graph(io_data_type="float32", device="cpu")
    x = graph.tensor([2, 4, 6, 5]).set_name("x")
    y = graph.relu(x).set_name("y").set_stride([256, 1, 40, 8]).set_alignment(512).set_output(True)
    drawn = torch.randn(2, 4, 6, 5)
    found = graph.run({"x": drawn})[y]
    assert found.stride() == (256, 1, 40, 8)
    assert found.data_ptr() % 512 == 0
    torch.testing.assert_close(found, drawn.relu(), rtol=0, atol=0)


def test_a_negative_view_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    negative = torch._neg_view(torch.ones(2, 4, 6, 5))
    with pytest.raises(BadParam, match="resolve_neg"):
        convolution("float32").run({"x": negative, "w": torch.ones(3, 4, 3, 3)})


@pytest.mark.parametrize("make", ["fake", "meta", "sparse"])
def test_tensors_without_memory_are_refused(make: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch._subclasses.fake_tensor import FakeTensorMode

    given = {
        "fake": lambda: FakeTensorMode().from_tensor(torch.ones(2, 4, 6, 5)),
        "meta": lambda: torch.ones(2, 4, 6, 5, device="meta"),
        "sparse": lambda: torch.ones(2, 4, 6, 5).to_sparse(),
    }[make]()
    with pytest.raises(BadParam):
        convolution("float32").run({"x": given, "w": torch.ones(3, 4, 3, 3)})
