"""What an allocation in host memory that fails is called: an error with its attribute, its size and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from graphdnn.enums import Status
from graphdnn.errors import InternalError
from graphdnn.rules import Rule

MEMORY = Rule(
    id="host.memory",
    expected="enough free memory on the host",
    reason="an allocation failed: {detail}",
    fix="make the problem smaller, choose a plan with a smaller workspace, or free memory",
    status=Status.INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
)


# What NumPy says of arrays that no memory could hold.
_TOO_LARGE = ("array is too big", "Maximum allowed dimension exceeded", "Maximum allowed size exceeded")


class HostOutOfMemory(InternalError, MemoryError):
    """The host has no memory left for an array, a workspace or an intermediate value."""


@contextmanager
def allocating(where: str, attribute: str, wanted: str) -> Iterator[None]:
    """Inside, memory is asked for; raises ``HostOutOfMemory`` where there is none. ``wanted``: how much."""
    try:
        yield
    except HostOutOfMemory:
        raise
    except MemoryError as error:
        raise out_of_memory(where, attribute, wanted, error) from error
    except ValueError as error:
        if not str(error).startswith(_TOO_LARGE):
            raise
        raise out_of_memory(where, attribute, wanted, error) from error


def out_of_memory(where: str, attribute: str, wanted: str, error: Exception) -> HostOutOfMemory:
    detail = str(error).rstrip(".") or "no more"
    return HostOutOfMemory(MEMORY.reject(where, attribute, wanted, detail=detail))
