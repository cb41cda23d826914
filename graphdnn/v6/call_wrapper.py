"""How a call begins and ends: arguments by the function table, then a result, a ``CudnnError``, or a C status."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, Signature
from typing import Any

from graphdnn.enums import Status
from graphdnn.errors import GraphdnnError
from graphdnn.v6.arguments import readers_of
from graphdnn.v6.call_docstrings import c_form, docstring
from graphdnn.v6.enums import cudnnStatus_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.functions import PLAIN, Function
from graphdnn.v6.rules import UNEXPECTED

Call = Callable[..., Any]

_SUCCESS = cudnnStatus_t.CUDNN_STATUS_SUCCESS


class _Thread(threading.local):
    returns_status = False


_thread = _Thread()


@contextmanager
def returning_status() -> Iterator[None]:
    """Return statuses as C does, for the calls of this thread inside a ``with`` block.

    A call then returns its status, or ``(status, result, ...)``, and raises nothing. The results of a failed call are
    None. ``cudnnGetVersion``, ``cudnnGetErrorString`` and ``cudnnGetCudartVersion`` return their value, as in C.
    """
    before = _thread.returns_status
    _thread.returns_status = True
    try:
        yield
    finally:
        _thread.returns_status = before


def as_call(row: Function, implementation: Call) -> Call:
    """The function a user calls: ``implementation`` behind the readers of its parameters."""
    name, names = row.name, tuple(p.name for p in row.inputs)
    required = sum(not p.optional for p in row.inputs)
    readers = readers_of(row)
    if name in PLAIN:
        return _finished(implementation, row, names)

    def call(*args: Any, **named: Any) -> Any:
        if named or not required <= len(args) <= len(readers):
            args = _in_order(row, names, required, args, named)
        try:
            result = implementation(*[read(value) for read, value in zip(readers, args, strict=False)])
        except CudnnError as error:
            failure = error
        except GraphdnnError as error:
            failure = CudnnError(error.rejections)
            failure.__cause__ = error
        except Exception as error:
            failure = _unexpected(name, error)
            failure.__cause__ = error
        else:
            return _with_status(_SUCCESS, result, len(row.results)) if _thread.returns_status else result
        if _thread.returns_status:
            return _with_status(failure.status, None, len(row.results))
        raise failure

    return _finished(call, row, names)


def by_count(call: Call, other: Call, count: int) -> Call:
    """A name with two signatures: ``other`` for so many arguments, as in a later release."""

    def either(*args: Any, **named: Any) -> Any:
        return (other if len(args) + len(named) == count else call)(*args, **named)

    either.__name__ = either.__qualname__ = call.__name__
    either.__doc__ = f"{call.__doc__}\nWith {count} arguments the call is ``{other.__name__}``.\n"
    return either


def _finished(call: Call, row: Function, names: tuple[str, ...]) -> Call:
    call.__name__ = call.__qualname__ = row.name
    call.__signature__ = _signature(row)  # type: ignore[attr-defined]
    call.__doc__ = docstring(row)
    return call


def _signature(row: Function) -> Signature:
    """What help() and editors show."""
    missing = Parameter.empty
    return Signature(
        [
            Parameter(p.name, Parameter.POSITIONAL_OR_KEYWORD, default=None if p.optional else missing)
            for p in row.inputs
        ]
    )


def _in_order(
    row: Function, names: tuple[str, ...], required: int, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """Positional and named arguments as C's order. Raises ``TypeError`` as Python does for its own functions."""
    values = dict(zip(names, args, strict=False))
    unknown = named.keys() - set(names)
    if len(args) > len(names) or unknown or named.keys() & values.keys():
        given = f"{len(args)} by position" + (f", by name {', '.join(sorted(named))}" if named else "")
        results = "; results are returned, not written through pointers" if row.results else ""
        raise TypeError(f"{c_form(row)}: arguments given: {given}{results}")
    values |= named
    missing = [n for n in names[:required] if n not in values]
    if missing:
        raise TypeError(f"{c_form(row)}: {len(values)} arguments given, missing: {', '.join(missing)}")
    return tuple(values[n] for n in names if n in values)


def _with_status(status: cudnnStatus_t, result: Any, results: int) -> Any:
    if results == 0:
        return status
    if results == 1:
        return status, result
    return (status, *((None,) * results if result is None else result))


def _unexpected(name: str, error: Exception) -> CudnnError:
    status = Status.ALLOC_FAILED if isinstance(error, MemoryError) else None
    detail = f"{type(error).__name__}: {error}"
    return CudnnError(UNEXPECTED.reject(name, "call", detail, status=status, detail=detail))
