"""Engines that misbehave, each in its own way: what a tuner has to survive.

The module is named as the worker's initializer (``autotune(initializer="tuning_faulty_engines", engines=...)``); the engines
compute with NumPy and predict that they are the fastest.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from graphdnn import engines
from graphdnn.engines import Cost, Engine, Kernel
from graphdnn.engines.numpy_general import ENGINE as NUMPY

Run = Callable[[Kernel, int, Any, Any], None]  # (NumPy's kernel, number of the call, arrays, scratch)


def _raises(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    raise ZeroDivisionError("one by nothing")


def _hangs(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    time.sleep(1000)


def _hangs_later(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    if call == 5:
        time.sleep(1000)
    kernel.run(arrays, scratch)


def _exhausts_memory(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    np.ones(1 << 40, np.uint8)


def _exits(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    os._exit(7)


def _kills_itself(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _crashes(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    ctypes.string_at(8)


def _is_wrong(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    kernel.run(arrays, scratch)
    arrays[-1].flat[0] += 1


def _writes_zeros(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    arrays[-1][...] = 0


def _is_one_percent_off(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    kernel.run(arrays, scratch)
    arrays[-1][...] *= np.float32(1.01)


def _leaves_some_out(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    before = arrays[-1].flat[-1]
    kernel.run(arrays, scratch)
    arrays[-1].flat[-1] = before


def _wrong_inside(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    kernel.run(arrays, scratch)
    arrays[-1][len(arrays[-1]) // 2] += 1


def _wrong_later(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    kernel.run(arrays, scratch)
    if call > 2:
        arrays[-1].flat[0] += 1


def _spoils_inputs(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    kernel.run(arrays, scratch)
    arrays[0].flat[0] += 1


def _prints(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    print("hello from a kernel")
    os.write(1, b"and from the C side\n")
    kernel.run(arrays, scratch)
    time.sleep(0.001)


def _steady(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    kernel.run(arrays, scratch)
    time.sleep(0.004)


def _bimodal(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    kernel.run(arrays, scratch)
    time.sleep(0.001 if call % 5 < 2 else 0.02)


def _slow(kernel: Kernel, call: int, arrays: Any, scratch: Any) -> None:
    kernel.run(arrays, scratch)
    time.sleep(SLOW)


SLOW = 0.4  # seconds
RUNS: dict[str, Run] = {
    "raises": _raises, "hangs": _hangs, "hangs_later": _hangs_later, "exhausts_memory": _exhausts_memory,
    "exits": _exits, "kills_itself": _kills_itself, "crashes": _crashes, "is_wrong": _is_wrong,
    "leaves_some_out": _leaves_some_out, "wrong_later": _wrong_later, "spoils_inputs": _spoils_inputs,
    "wrong_inside": _wrong_inside, "prints": _prints, "steady": _steady, "bimodal": _bimodal,
    "slow": _slow, "writes_zeros": _writes_zeros, "is_one_percent_off": _is_one_percent_off,
}  # fmt: skip


def _engine(number: int, name: str, run: Run) -> Engine:
    def compile(task: Any, knobs: Any) -> Kernel:
        kernel, calls = NUMPY.compile(task, knobs), [0]

        def counted(arrays: Any, scratch: Any) -> None:
            calls[0] += 1
            run(kernel, calls[0], arrays, scratch)

        return Kernel(name, counted)

    cost = Cost(1.0, 1.0, 1e-9 * (1 + number / 100))
    return replace(NUMPY, id=9000 + number, name=name, compile=compile, cost=lambda task, knobs: cost, is_general=False)


def _no_compile(task: Any, knobs: Any) -> Any:
    raise RuntimeError("nothing compiles here")


ENGINES = {name: _engine(i, name, run) for i, (name, run) in enumerate(RUNS.items())}
ENGINES["compiles_not"] = replace(ENGINES["raises"], id=9900, name="compiles_not", compile=_no_compile)


def register() -> None:
    """Known by name in this process."""
    engines.HOST_ENGINES = (*engines.HOST_ENGINES, *ENGINES.values())
