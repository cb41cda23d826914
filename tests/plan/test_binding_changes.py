"""Arrays that are not the last call's: which way they are admitted, and that none is taken unseen."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from threading import Thread
from types import SimpleNamespace
from typing import Any
from weakref import ref

import numpy as np
import pytest
from emulator import MISSING
from emulator.runtime import EmulatedRuntime

from graphdnn import rank
from graphdnn.dtypes import Array
from graphdnn.errors import BadParam, Rejection
from graphdnn.plan import DevicePlan, binding_check
from graphdnn.plan.binding_cache import MOST, BindingCache
from graphdnn.plan.binding_validation import Expected
from graphdnn.plan.device_arrays import shadow_at
from graphdnn.plan.launch_block import Block
from graphdnn.problem import parse

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)
TEXT = "pointwise x=f32[2,8,4,4] + bias + relu"


class OnDevice:
    """An array as CuPy's are: extents can be set, nothing else."""

    __module__ = "cupy"

    def __init__(self, memory: Array, start: int = 0, device: int = 0) -> None:
        self.memory, self.shape, self.strides, self.dtype = memory, memory.shape, memory.strides, memory.dtype
        self.data = SimpleNamespace(ptr=memory.ctypes.data + start, device_id=device)


class Watched(EmulatedRuntime):
    """Counts the full checks."""

    full = 0

    def array_type(self) -> type | None:
        return OnDevice

    def shadows(
        self, expected: Sequence[Expected], arrays: Sequence[Any], stream: int
    ) -> tuple[list[Array], list[Rejection]]:
        self.full += 1
        return [shadow_at(a.data.ptr, a.dtype, a.shape, a.strides) for a in arrays], []


def plan_and_runtime(text: str = TEXT) -> tuple[DevicePlan, Watched]:
    runtime = Watched()
    return DevicePlan(rank(parse(text).build_operation_graph(), "h200").best, runtime), runtime


def arrays_for(plan: DevicePlan, seed: int) -> dict[int, OnDevice]:
    drawn = np.random.default_rng(seed)
    return {e.spec.uid: OnDevice(drawn.standard_normal(e.spec.dims).astype(np.float32)) for e in plan._expected}


def right(plan: DevicePlan, bound: dict[int, OnDevice]) -> bool:
    x, b, y = (bound[e.spec.uid].memory for e in sorted(plan._expected, key=lambda e: (e.is_output, -e.spec.bytes)))
    return bool((y == np.maximum(x + b, 0)).all())


def _spoil_results(plan: DevicePlan, bound: dict[int, OnDevice]) -> None:
    for e in plan._expected:
        if e.is_output:
            bound[e.spec.uid].memory.fill(np.nan)


def test_arrays_of_every_call_are_its_own() -> None:
    plan, runtime = plan_and_runtime()
    kept = [arrays_for(plan, seed) for seed in range(3)]
    for bound in kept:
        plan.execute(bound)
        assert right(plan, bound)
    assert not runtime.full
    assert not plan._binding_cache._sets  # nothing holds on to arrays that do not come again


def test_sets_of_arrays_that_take_turns_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = plan_and_runtime()
    sets = [arrays_for(plan, seed) for seed in range(3)]
    for bound in sets * 2:
        plan.execute(bound)
    with monkeypatch.context() as patched:
        for owner, name in ((DevicePlan, "_admit"), (Block, "fill")):  # neither checked nor written again
            patched.delattr(owner, name)
        for bound in sets * 2:
            _spoil_results(plan, bound)
            plan.execute(bound)
            assert right(plan, bound)
    next(iter(sets[1].values())).shape = (8, 2, 4, 4)
    plan.execute(sets[0])
    with pytest.raises(BadParam, match=r"binding\.shape"):
        plan.execute(sets[1])


def test_new_arrays_where_others_lay_are_looked_at_but_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, runtime = plan_and_runtime()
    first, second = arrays_for(plan, 0), arrays_for(plan, 1)
    for bound in (first, second) * 2:
        plan.execute(bound)
    monkeypatch.delattr(Block, "fill")
    for bound in (first, second) * 2:
        again = {uid: OnDevice(array.memory) for uid, array in bound.items()}
        _spoil_results(plan, again)
        plan.execute(again)
        assert right(plan, again)
    uid = next(iter(first))
    first[uid] = OnDevice(first[uid].memory)
    first[uid].dtype = np.dtype(np.int32)
    with pytest.raises(BadParam, match=r"binding\.data_type"):
        plan.execute(first)
    assert runtime.full == 1


def test_a_set_is_forgotten_when_one_of_its_arrays_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another array may get the identity of a deleted one: then it must be checked like any new array."""
    plan, _ = plan_and_runtime()
    bound = arrays_for(plan, 0)
    for _ in range(3):
        plan.execute(bound)
    (ids,) = plan._binding_cache._sets
    uid = bound.popitem()[0]
    assert not plan._binding_cache._sets
    with pytest.raises(BadParam, match=r"binding\.missing"):
        plan.execute(bound)
    bound[uid] = arrays_for(plan, 1)[uid]
    monkeypatch.setattr(binding_check, "id", dict(zip(map(id, bound.values()), ids, strict=True)).get, raising=False)
    admitted: list[object] = []
    admit = DevicePlan._admit
    monkeypatch.setattr(DevicePlan, "_admit", lambda *given, **how: admitted.append(given) or admit(*given, **how))
    plan.execute(bound)
    assert admitted
    assert right(plan, bound)


def test_arrays_do_not_keep_a_plan_alive() -> None:
    plan, _ = plan_and_runtime()
    bound = arrays_for(plan, 0)
    for _ in range(3):
        plan.execute(bound)
    cache = ref(plan._binding_cache)
    del plan
    gc.collect()
    assert cache() is None
    bound.clear()


def test_places_and_their_blocks_are_bounded() -> None:
    plan, _ = plan_and_runtime()
    sets = [arrays_for(plan, seed) for seed in range(MOST + 3)]
    for _ in range(3):
        for bound in sets:
            for _ in range(3):
                _spoil_results(plan, bound)
                plan.execute(bound)
                assert right(plan, bound)
    met = plan._binding_cache
    assert len(met.places) <= MOST
    assert len(met._sets) <= MOST
    own = [place.blocks for place in met.places.values() if place.blocks is not plan._free]
    assert len(plan._free) + sum(map(len, own)) <= 2 * MOST


def test_blocks_with_work_of_a_library_are_shared() -> None:
    """Such a block may hold memory on the device."""
    free: list[Block] = []
    for is_light in (False, True):
        met = BindingCache(free, is_light=is_light)
        for _ in range(3):
            first, second = (met.place([object()], (i,), (i,), are_fixed=False) for i in range(2))
            assert first is not second
        assert [place.blocks is free for place in (first, second)] == [not is_light] * 2


def test_threads_with_arrays_of_their_own_and_the_same() -> None:
    plan, _ = plan_and_runtime()
    shared = arrays_for(plan, 99)
    wrong: list[int] = []

    def work(seed: int) -> None:
        mine = [arrays_for(plan, seed), arrays_for(plan, seed + 50)]
        for turn in range(60):
            bound = mine[turn % 2]
            _spoil_results(plan, bound)
            plan.execute(bound)
            if not right(plan, bound):
                wrong.append(seed)
            plan.execute(shared)

    threads = [Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert right(plan, shared)


def test_arrays_that_come_again_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, _ = plan_and_runtime()
    bound = arrays_for(plan, 0)
    plan.execute(bound)
    plan.execute(bound)
    admit: list[object] = []
    monkeypatch.setattr(DevicePlan, "_admit", lambda *given: admit.append(given))
    _spoil_results(plan, bound)
    plan.execute(bound)
    assert not admit
    assert right(plan, bound)
    monkeypatch.undo()
    next(iter(bound.values())).shape = (8, 2, 4, 4)
    with pytest.raises(BadParam, match=r"binding\.shape"):
        plan.execute(bound)


def test_the_same_memory_in_other_arrays() -> None:
    plan, _ = plan_and_runtime()
    bound = arrays_for(plan, 0)
    for _ in range(3):
        bound = {uid: OnDevice(array.memory) for uid, array in bound.items()}
        plan.execute(bound)
        assert right(plan, bound)


def _typed(array: OnDevice) -> None:
    array.dtype = np.dtype(np.int32)


def _shaped(array: OnDevice) -> None:
    array.shape = (*array.shape[::-1],)


def _strided(array: OnDevice) -> None:
    array.strides = tuple(2 * step for step in array.strides)


def _misaligned(array: OnDevice) -> None:
    array.data.ptr += 2


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [(_typed, "data_type"), (_shaped, "shape"), (_strided, "strides"), (_misaligned, "alignment")],
)
@pytest.mark.parametrize("seen", [0, 1, 3])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_wrong_array_is_refused(spoil: Callable[[OnDevice], None], rule: str, seen: int, place: int) -> None:
    """After any number of right ones, also where the rest are those of the last call."""
    plan, runtime = plan_and_runtime()
    bound = arrays_for(plan, 0)
    for _ in range(seen):
        plan.execute(bound)
    uid = plan._expected[place].spec.uid
    wrong = OnDevice(bound[uid].memory)
    spoil(wrong)
    for _ in range(2):
        with pytest.raises(BadParam, match=rf"binding\.{rule}"):
            plan.execute({**bound, uid: wrong})
    assert runtime.full == 2
    plan.execute(bound)
    assert right(plan, bound)


@pytest.mark.parametrize("seen", [0, 1, 3])
def test_an_output_over_an_input_is_refused(seen: int) -> None:
    plan, _ = plan_and_runtime()
    bound = arrays_for(plan, 0)
    for _ in range(seen):
        plan.execute(bound)
    (out,) = [e.spec.uid for e in plan._expected if e.is_output]
    x = next(e.spec for e in plan._expected if not e.is_output and e.spec.bytes > 32)
    with pytest.raises(BadParam, match=r"binding\.overlap"):
        plan.execute({**bound, out: OnDevice(bound[x.uid].memory)})


def test_arrays_of_another_device_go_the_long_way() -> None:
    plan, runtime = plan_and_runtime()
    bound = {uid: OnDevice(array.memory, device=1) for uid, array in arrays_for(plan, 0).items()}
    plan.execute(bound)
    assert runtime.full == 1


def test_strides_of_axes_of_one_element_may_be_any() -> None:
    """They take the long way once."""
    plan, runtime = plan_and_runtime()
    bound = arrays_for(plan, 0)
    for i in range(3):
        bound = {uid: OnDevice(array.memory) for uid, array in bound.items()}
        for array in bound.values():
            array.strides = tuple(4096 if n == 1 else step for n, step in zip(array.shape, array.strides, strict=True))
        plan.execute(bound)
        assert right(plan, bound)
        assert runtime.full == 1, i


def test_numbers_are_read_at_each_call() -> None:
    """The same object is known again where it cannot change; an array of one element can."""
    plan, fresh = (plan_and_runtime("norm layer x=f32[4,64]")[0] for _ in range(2))
    bound = arrays_for(plan, 0)
    (epsilon,) = (e.spec.uid for e in plan._scalars)
    changing = np.array(0.5)
    for turn, number in enumerate([1e-5, 1e-5, 2.0, True, 1, 1.0, changing, changing, np.float32(0.25), 2.0, 1e-5]):
        changing[...] = 0.5 + turn
        found = []
        for one, given in ((plan, number), (fresh, float(number))):
            _spoil_results(plan, bound)
            one.execute({**bound, epsilon: given})
            found.append([bound[e.spec.uid].memory.copy() for e in plan._expected if e.is_output])
        for ours, wanted in zip(*found, strict=True):
            assert (ours == wanted).all(), turn
    with pytest.raises(BadParam, match=r"binding\.missing"):
        plan.execute(bound)
