"""Bad input on the GPU: each refusal has its rule, nothing is written, and the plan stays usable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphdnn import OperationGraph, build
from graphdnn.cuda.device_query import present_device
from graphdnn.errors import BadParam, NotSupported
from graphdnn.plan import DevicePlan
from graphdnn.problem import parse

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # warnings of other libraries are theirs

Arrays = dict[int, Any]


class Refused:
    """One graph ``y = x + b`` over [64, 64] floats, and a plan of two kernels for the workspace's refusals."""

    def __init__(self, text: str) -> None:
        import cupy

        self.graph: OperationGraph = parse(text).build_operation_graph()
        plan = build(self.graph, "cuda")
        assert isinstance(plan, DevicePlan)
        self.plan = plan
        rng = np.random.default_rng(0)
        self.arrays: Arrays = {
            t.uid: cupy.asarray(rng.standard_normal(t.dims).astype(np.float32)) for t in self.graph.bound
        }
        outputs = {t.uid for t in self.graph.outputs}
        self.x, *_ = (t.uid for t in self.graph.bound if t.uid not in outputs)
        (self.y,) = outputs

    def refuse(self, rule: str, change: Callable[[Arrays], Any], workspace: Any = None) -> None:
        """``change`` spoils the bindings; the call has to be refused for this reason and leave everything as it was."""
        import cupy

        bound = dict(self.arrays)
        kept = change(bound)
        before = {uid: array.copy() for uid, array in self.arrays.items()}
        given = self.plan.new_workspace() if workspace is None else workspace
        with pytest.raises(BadParam) as caught:
            self.plan.execute(bound, None if isinstance(given, str) else given)
        assert rule in [r.rule for r in caught.value.rejections], str(caught.value)
        assert all(r.fix and r.reason and r.expected for r in caught.value.rejections)
        cupy.cuda.Device().synchronize()
        for uid, array in self.arrays.items():
            assert bool((array == before[uid]).all())
        del kept
        self.plan.execute(self.arrays, self.plan.new_workspace())
        cupy.cuda.Device().synchronize()


@pytest.fixture
def total() -> Refused:
    return Refused("pointwise x=f32[64,64] + residual")


@pytest.fixture
def divided() -> Refused:
    return Refused("reduce add x=f32[4096,512] y=[1,1]")


def _put(uid: int, value: Callable[[Any], Any]) -> Callable[[Arrays], Any]:
    def change(bound: Arrays) -> Any:
        original = bound[uid]
        bound[uid] = value(original)
        return original, bound[uid]

    return change


def test_an_array_in_host_memory(total: Refused) -> None:
    total.refuse("binding.device_kind", _put(total.x, lambda a: a.get()))
    total.refuse("binding.device_kind", _put(total.y, lambda a: a.get()))


def test_a_torch_tensor_in_host_memory(total: Refused) -> None:
    torch = pytest.importorskip("torch")
    total.refuse("binding.device_kind", _put(total.x, lambda a: torch.zeros(64, 64)))


@pytest.mark.parametrize("value", ["text", None, 3.5, [1, 2], object()])
def test_what_is_no_array(total: Refused, value: Any) -> None:
    total.refuse("binding.device_kind", _put(total.x, lambda a: value))


class _ReadOnly:
    """As a library says that nobody may write its memory."""

    def __init__(self, array: Any) -> None:
        described = dict(array.__cuda_array_interface__)
        described["data"] = described["data"][0], True
        self.__cuda_array_interface__ = described


def test_an_output_that_is_read_only(total: Refused) -> None:
    total.refuse("binding.read_only", _put(total.y, _ReadOnly))
    total.plan.execute({**total.arrays, total.x: _ReadOnly(total.arrays[total.x])})


def test_torch_tensors_that_are_not_what_is_in_memory(total: Refused) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    numbers = torch.randn(64, 64, dtype=torch.complex64, device="cuda")
    for wrong in (numbers.conj().imag, torch.eye(64, device="cuda").to_sparse(), torch.device("cuda")):
        total.refuse("binding.device_kind", _put(total.x, lambda a, wrong=wrong: wrong))


@pytest.mark.parametrize("stream", ["first", object(), -1, True, 2.0])
def test_what_is_no_stream(total: Refused, stream: Any) -> None:
    with pytest.raises(BadParam, match=r"execute\.stream_kind"):
        total.plan.execute(total.arrays, None, stream)


def test_an_address_in_host_memory(total: Refused) -> None:
    memory = np.zeros((64, 64), np.float32)
    total.refuse("binding.address", _put(total.x, lambda a: memory.ctypes.data))


def test_a_null_pointer(total: Refused) -> None:
    total.refuse("binding.address", _put(total.y, lambda a: 0))


def test_the_address_of_freed_memory(total: Refused) -> None:
    import cupy

    memory = cupy.cuda.Memory(64 * 64 * 4)
    address = memory.ptr
    del memory
    total.refuse("binding.address", _put(total.x, lambda a: address))


def test_an_allocation_that_is_too_small(total: Refused) -> None:
    import cupy

    memory = cupy.cuda.Memory(64 * 64 * 2)
    total.refuse("binding.size", _put(total.x, lambda a: memory.ptr))
    large = cupy.cuda.Memory(64 * 64 * 4)
    total.refuse("binding.size", _put(total.y, lambda a: large.ptr + 64))


def test_an_address_that_is_not_aligned(total: Refused) -> None:
    import cupy

    memory = cupy.zeros(64 * 64 * 4 + 64, cupy.uint8)
    total.refuse("binding.alignment", _put(total.x, lambda a: int(memory.data.ptr) + 4))
    shifted = memory[4 : 4 + 64 * 64 * 4].view(cupy.float32).reshape(64, 64)
    total.refuse("binding.alignment", _put(total.y, lambda a: shifted))


def test_another_type(total: Refused) -> None:
    total.refuse("binding.data_type", _put(total.x, lambda a: a.astype(np.float64)))
    total.refuse("binding.data_type", _put(total.x, lambda a: a.view(np.int32)))


def test_another_shape(total: Refused) -> None:
    total.refuse("binding.shape", _put(total.x, lambda a: a.reshape(4096)))
    total.refuse("binding.shape", _put(total.x, lambda a: a[:32]))


def test_other_strides(total: Refused) -> None:
    total.refuse("binding.strides", _put(total.x, lambda a: a.T))
    total.refuse("binding.strides", _put(total.y, lambda a: a[::-1]))


def test_an_output_that_is_an_input(total: Refused) -> None:
    total.refuse("binding.overlap", lambda bound: bound.update({total.y: bound[total.x]}))


def test_an_output_that_overlaps_an_input(total: Refused) -> None:
    import cupy

    memory = cupy.zeros(64 * 64 + 64 * 32, cupy.float32)
    first, second = (memory[start : start + 4096].reshape(64, 64) for start in (0, 2048))
    total.refuse("binding.overlap", lambda bound: bound.update({total.x: first, total.y: second}))
    addresses = [int(a.data.ptr) for a in (first, second)]
    total.refuse("binding.overlap", lambda bound: bound.update({total.x: addresses[0], total.y: addresses[1]}))


def test_names(total: Refused) -> None:
    total.refuse("binding.missing", lambda bound: bound.pop(total.x))
    total.refuse("binding.extra", lambda bound: bound.update({4711: bound[total.x]}))


def test_an_array_reshaped_after_it_was_admitted(total: Refused) -> None:
    total.plan.execute(total.arrays)
    total.arrays[total.x].shape = (4096,)
    try:
        with pytest.raises(BadParam, match=r"binding\.shape"):
            total.plan.execute(total.arrays)
    finally:
        total.arrays[total.x].shape = (64, 64)
    total.plan.execute(total.arrays)


def test_workspaces(divided: Refused) -> None:
    import cupy

    size = divided.plan.workspace_size
    assert size > 0, "the sum is divided among blocks"
    divided.refuse("workspace.missing", lambda bound: None, workspace="none")
    divided.refuse("workspace.small", lambda bound: None, workspace=cupy.zeros(size - 1, cupy.uint8))
    divided.refuse("workspace.kind", lambda bound: None, workspace=cupy.zeros(2 * size, cupy.uint8)[::2])
    divided.refuse("binding.device_kind", lambda bound: None, workspace=np.zeros(size, np.uint8))
    short = cupy.cuda.Memory(max(1, size // 2))
    divided.refuse("binding.size", lambda bound: None, workspace=short.ptr)
    inside = divided.arrays[divided.x].reshape(-1).view(cupy.uint8)[:size]
    divided.refuse("workspace.overlap", lambda bound: None, workspace=inside)


def test_a_plan_for_another_device(total: Refused) -> None:
    other = "a100" if present_device().compute_capability != (8, 0) else "h200"
    plan = build(total.graph, other)
    with pytest.raises(NotSupported, match=r"execute\.device_absent"):
        plan.execute(total.arrays)
