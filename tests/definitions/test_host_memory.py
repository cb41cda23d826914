"""Addresses that callers give: numbers, memory that is gone, memory that is read-only. Refused, where they were a signal.

Each case runs in a process of its own, so that a signal fails one test and ends no other.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from repository import TESTS

from graphdnn import host_memory

PROTECTED = (
    "import mmap; page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ); locked = np.frombuffer(page, np.uint8).ctypes.data"
)

BEFORE = f"""
import ctypes
import numpy as np
from backend_calls import *
from backend_calls import execute, matmul_arrays, matmul_plan
from backend_descriptors import made
from graphdnn import v6, build
from graphdnn.problem import parse
from graphdnn.attribute_names import AttributeName as A
from graphdnn.enums import AttributeType as T, DataType, DescriptorType as D
from graphdnn.errors import GraphdnnError
{PROTECTED}

class Foreign:
    def __init__(self, address, shape=(8, 6)):
        self.__array_interface__ = dict(data=(address, False), shape=shape, typestr="<f4", version=3)

def constant(value, kind=DataType.FLOAT):
    made(D.TENSOR, {{
        A.TENSOR_UNIQUE_ID: (T.INT64, [7]), A.TENSOR_DATA_TYPE: (T.DATA_TYPE, [kind]),
        A.TENSOR_DIMENSIONS: (T.INT64, [1]), A.TENSOR_STRIDES: (T.INT64, [1]),
        A.TENSOR_IS_BY_VALUE: (T.BOOLEAN, [True]), A.TENSOR_CONSTANT_VALUE: (T.VOID_PTR, [value]),
    }})

def legacy(x, y=None, alpha=1.0):
    handle, t = v6.cudnnCreate(), v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensor4dDescriptor(t, v6.CUDNN_TENSOR_NCHW, v6.CUDNN_DATA_FLOAT, 1, 2, 3, 4)
    v6.cudnnTransformTensor(handle, alpha, t, x, 0.0, t, np.zeros((1, 2, 3, 4), np.float32) if y is None else y)

def bound(x):
    plan = build(parse("pointwise x=f32[8,6] + relu").build_operation_graph(), "cpu")
    first, *_, last = plan.config.fused.graph.bound
    plan.execute({{first.uid: x, last.uid: np.zeros((8, 6), np.float32)}})
"""
CASES = {
    "constant": ("attribute.value", "constant(123456)"),
    "small constant": ("attribute.value", "constant(7)"),
    "constant of ctypes": ("attribute.value", "constant(ctypes.cast(123456, ctypes.POINTER(ctypes.c_float)))"),
    "constant of a void pointer": ("attribute.value", "constant(ctypes.c_void_p(123456))"),
    "constant of an array": ("attribute.value", "constant((ctypes.c_float * 1).from_address(123456))"),
    "constant of a foreign array": ("attribute.value", "constant(Foreign(123456, (1,)))"),
    "variant pack": ("variant_pack.memory.unreadable", "execute(matmul_plan(), matmul_arrays() | {1: 123456})"),
    "end of a variant pack": ("variant_pack.memory.unreadable", "execute(matmul_plan(), matmul_arrays() | {1: 2**47 - 4096})"),
    "output of a variant pack": ("variant_pack.memory.unreadable", "execute(matmul_plan(), matmul_arrays() | {3: locked})"),
    "foreign array": ("binding.kind", "bound(Foreign(123456))"),
    "legacy input": ("v6.memory.unreadable", "legacy(123456)"),
    "legacy input of ctypes": ("v6.memory.unreadable", "legacy(ctypes.cast(123456, ctypes.POINTER(ctypes.c_float)))"),
    "legacy output": ("v6.memory.unreadable", "legacy(np.zeros((1, 2, 3, 4), np.float32), locked)"),
    "legacy foreign array": ("v6.memory.kind", "legacy(Foreign(123456, (1, 2, 3, 4)))"),
    "legacy scalar": ("v6.scalar", "legacy(np.zeros((1, 2, 3, 4), np.float32), None, ctypes.cast(123456, ctypes.POINTER(ctypes.c_float)))"),
    "text": ("attribute.value", "cudnnBackendSetAttribute(cudnnBackendCreateDescriptor(D.EXECUTION_PLAN), A.EXECUTION_PLAN_JSON_REPRESENTATION, T.CHAR, 4, (ctypes.c_char * 4).from_address(123456))"),
    "numbers": ("attribute.value", "cudnnBackendSetAttribute(cudnnBackendCreateDescriptor(D.TENSOR), A.TENSOR_DIMENSIONS, T.INT64, 2, (ctypes.c_int64 * 2).from_address(123456))"),
}  # fmt: skip


@pytest.mark.skipif(os.name != "posix", reason="only POSIX answers whether memory is there")
@pytest.mark.parametrize("case", CASES)
def test_what_is_no_memory_is_refused(case: str) -> None:
    rule, call = CASES[case]
    text = (
        f"{BEFORE}\ntry:\n    {call}\nexcept GraphdnnError as error:\n    print(*(r.rule for r in error.rejections))\n"
    )
    folders = (TESTS / "support", TESTS / "backend", TESTS, TESTS.parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, f"{run.returncode}\n{run.stderr[-1500:]}"
    assert run.stdout.split() == [rule]


@pytest.mark.skipif(os.name != "posix", reason="only POSIX answers whether memory is there")
def test_memory_that_is_there_is_read_and_left_as_it_is() -> None:
    array = np.arange(10_000, dtype=np.float32)
    before = array.copy()
    address = array.ctypes.data
    for size in (1, 4, 4096, array.nbytes):
        host_memory.check(address, size, is_written=True)
        assert host_memory.at(address, size).tobytes() == array.tobytes()[:size]
    assert (array == before).all()
    for wrong, size in ((address, 2**50), (2**64 - 1, 1), (2**64 - 4, 8), (2**63, 1), (1, 1), (4095, 1)):
        with pytest.raises(host_memory.UnreadableError):
            host_memory.check(wrong, size)


@pytest.mark.skipif(os.name != "posix", reason="only POSIX answers whether memory is there")
def test_a_known_address_asks_nothing() -> None:
    """Legacy calls come with addresses each time: the system is asked about one once."""
    array = np.zeros(64, np.uint8)
    host_memory._checked_once.cache_clear()
    for _ in range(5):
        host_memory.at_known(array.ctypes.data, 64)
    assert host_memory._checked_once.cache_info().misses == 1
