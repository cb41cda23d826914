"""What tests ask for by name: places to run, caches, and what stands for the compiler, the driver and a user's settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_compiler import Compiler
from fake_driver import FakeDriver

from graphdnn import debug_log, v6
from graphdnn.cuda import device_query, driver_api, driver_library, nvrtc
from graphdnn.cuda.kernel_cache import KernelCache, default_cache

if TYPE_CHECKING:
    from emulator.runtime import EmulatedRuntime


@pytest.fixture(scope="module")
def handle() -> Any:
    """Of the legacy calls."""
    return v6.cudnnCreate()


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> EmulatedRuntime:
    """What every device plan runs on in this test."""
    from emulator.runtime import EmulatedRuntime

    made = EmulatedRuntime()
    monkeypatch.setattr("graphdnn.plan.device_plan.CudaRuntime", lambda device: made)
    return made


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    """A kernel cache of this test's own, in memory."""
    kept = KernelCache(None)
    monkeypatch.setattr("graphdnn.cuda.kernel_cache.default_cache", lambda: kept)
    return kept


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiler]:
    """What compiles every kernel in this test, instead of NVRTC; what was said once may be said again."""
    made = Compiler()
    monkeypatch.setattr(nvrtc, "compile_text", made.compile_text)
    monkeypatch.setattr(nvrtc, "version", lambda: made.version)
    debug_log._said.clear()
    yield made
    debug_log._said.clear()


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user without a home folder, and no variable that names another place for kernels."""

    def home(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("GRAPHDNN_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", home)
    default_cache.cache_clear()
    yield
    default_cache.cache_clear()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Sets what is asked of a run by the environment: ``asked(VERBOSE="1", DEBUG="fusion")``."""

    def ask(**variables: str) -> None:
        for name in ("VERBOSE", "DEBUG"):
            monkeypatch.setenv(f"GRAPHDNN_{name}", variables.get(name, ""))
        debug_log._named.clear()
        debug_log.read_environment()

    yield ask
    monkeypatch.undo()
    debug_log.read_environment()


def _forget_driver() -> None:
    for remembered in (driver_library._state, driver_library.launch_function, device_query._spec):
        remembered.cache_clear()
    driver_api._contexts.clear()


@pytest.fixture
def unknown_driver() -> Iterator[None]:
    """Nothing is remembered of a driver, before and after."""
    _forget_driver()
    yield
    _forget_driver()


@pytest.fixture
def fake_driver(monkeypatch: pytest.MonkeyPatch, unknown_driver: None) -> FakeDriver:
    """The driver that every call of this test reaches."""
    made = FakeDriver()
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    return made
