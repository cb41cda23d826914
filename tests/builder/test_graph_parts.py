"""A graph is made of parts: every function that adds an operation, and every method of a part, is a method of Graph."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from graphdnn import Graph
from graphdnn.builder import attention_methods, extension_methods, norm_methods, operation_methods
from graphdnn.builder.border import delegated
from graphdnn.builder.description import Description
from graphdnn.errors import BadParam

MODULES = (attention_methods, extension_methods, norm_methods, operation_methods)


def operations(module: ModuleType) -> list[str]:
    """The functions of a module that return tensors of a description."""
    return [
        name
        for name, member in vars(module).items()
        if inspect.isfunction(member)
        and member.__module__ == module.__name__
        and not name.startswith("_")
        and "Tensor" in str(member.__annotations__["return"])
    ]


def test_a_graph_inherits_nothing() -> None:
    assert Graph.__mro__ == (Graph, object)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_operation_is_a_method(module: ModuleType) -> None:
    assert operations(module)
    for name in operations(module):
        method, function = getattr(Graph, name), getattr(module, name)
        assert inspect.unwrap(method) is function
        assert [*inspect.signature(method).parameters] == ["self", *[*inspect.signature(function).parameters][1:]]
        assert method.__qualname__ == f"Graph.{name}"
        assert method.__doc__ == function.__doc__


def test_a_delegated_method_reads_its_arguments() -> None:
    def doubled(description: Description, count: int) -> int:
        return 2 * count

    doubled.__annotations__["count"] = "int"
    method = delegated("_description", doubled)
    assert method(Graph("g"), 4) == 8
    with pytest.raises(BadParam, match=r"Graph 'g'.*count"):
        method(Graph("g"), "four")  # type: ignore[arg-type]


def test_name_and_device_can_be_set() -> None:
    graph = Graph("before")
    graph.name, graph.device = "after", "h200"
    assert repr(graph) == "<Graph 'after': 0 operations>"
    assert graph.device.name == Graph(device="h200").device.name
    with pytest.raises(BadParam):
        graph.device = "no such device"
