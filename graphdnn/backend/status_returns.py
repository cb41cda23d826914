"""How a call ends: result or exception, or the status code in C's manner, and the thread's last error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from graphdnn.backend.rules import UNEXPECTED
from graphdnn.enums import Status
from graphdnn.errors import GraphdnnError, error_for

P = ParamSpec("P")
R = TypeVar("R")


class _Thread(threading.local):
    returns_status = False
    last_error = ""


_thread = _Thread()


@contextmanager
def returning_status() -> Iterator[None]:
    """Return statuses as C does, for the calls of this thread inside a ``with`` block.

    A call then returns its ``Status``, or ``(Status, result, ...)``, and raises nothing. The results of a failed call
    are None.
    """
    before = _thread.returns_status
    _thread.returns_status = True
    try:
        yield
    finally:
        _thread.returns_status = before


def last_error() -> str:
    """Text of this thread's most recent failure; it stays until the next one."""
    return _thread.last_error


def c_call(results: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function end as the module says; ``results`` is the number of its results."""

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                result = function(*args, **kwargs)
            except GraphdnnError as error:
                failure, cause = error, error.__cause__
            except Exception as error:
                if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                    raise  # the call itself has wrong arguments; no C compiler would take it
                failure, cause = _unexpected(function.__name__, error), error
            else:
                return cast(R, _with_status(Status.SUCCESS, result, results)) if _thread.returns_status else result
            _thread.last_error = f"{failure.status.c_name} ({int(failure.status)}) in {function.__name__}\n{failure}"
            if _thread.returns_status:
                nothing = (None,) * results if results > 1 else None
                return cast(R, _with_status(failure.status, nothing, results))
            raise failure from cause

        return call

    return wrap


def _with_status(status: Status, result: Any, results: int) -> Any:
    if results == 0:
        return status
    return (status, result) if results == 1 else (status, *result)


def _unexpected(name: str, error: Exception) -> GraphdnnError:
    status = Status.INTERNAL_ERROR_HOST_ALLOCATION_FAILED if isinstance(error, MemoryError) else None
    detail = f"{type(error).__name__}: {error}"
    return error_for([UNEXPECTED.reject(name, "call", detail, status=status, detail=detail)])
