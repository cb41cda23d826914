"""The page of the graph builder: its methods with their arguments, from the classes that have them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from graphdnn import Graph
from graphdnn.builder import Tensor
from graphdnn.builder.pointwise_methods import POINTWISE_METHODS

Table = Callable[[Iterable[str], Iterable[Iterable[object]]], str]
_EVERYWHERE = ("self", "compute_data_type", "name")  # said once, above the tables
_SECTIONS = {  # title -> the module, and members that come before its own
    "Tensors": ("", ("tensor", "tensor_like", "tensor_scalar", "query_tensor_attributes_of_uid")),
    "Operations": ("operation_methods", ()),
    "Attention": ("attention_methods", ()),
    "Normalizations": ("norm_methods", ()),
    "Extension operations": ("extension_methods", ()),
    "Asking": ("analysis", ("fused", "ranking", "kernels")),
    "Building and choosing": ("plan_selection", ("autotune", "plan", "validate", "build_operation_graph", "key")),
    "Running": ("execution", ("execute",)),
}
_RECURRENT = """\
A recurrent network is described once for its three operations. `rnn.weight_count` is the number of weights, and
`rnn.matrix(layer, id)` and `rnn.bias(layer, id)` say where a matrix or a bias lies:

```python
rnn = graphdnn.RnnSpec(cell="LSTM", input_size=64, hidden_size=128, layers=2, dropout=0.0, batch_sizes=[32] * 20)
```

The cells are `RELU`, `TANH`, `LSTM` and `GRU`. Further settings are `directions=2`, `skip_input=True` (the first layer
has no matrix) and `arithmetic="float64"`. `batch_sizes` may fall from step to step, for sequences that are sorted by
falling length."""
_INTRODUCTION = """\
This page lists the methods of `graphdnn.Graph`. A method has the name that cuDNN's frontend gives it, if it has one.
The docstrings, and the API reference that `make docs` builds from them, state parameters, shapes and errors.

- Every operation takes `name`, a label for reports, and `compute_data_type`, the type of its arithmetic. Without it the
  operation takes the graph's type, else FLOAT, or INT32 for integers, or DOUBLE for doubles.
- A type is a name (`"float16"`, `"f16"`), a type of NumPy or PyTorch, or a member of `DataType`. A mode or a phase is a
  member of its enum, or its name (`"ADD"`).
- Padding, stride, dilation and window are one number for each spatial axis, or one number for all axes.
- A result is virtual until `set_output(True)`. Its extents, strides and type are inferred unless they are set. Its
  layout is the layout of the first operand with the same rank, for example channels last (`get_stride()`).

[tutorial.md](tutorial.md) shows how to write a graph. A softmax has no method of its own: write `reduction(x, "MAX")`,
`sub`, `exp`, `reduction(.., "ADD")` and `div`, which are [fused](fusion.md#softmax). `sdpa` writes the operations of
attention, which [become one kernel](fusion.md#attention). The same operations become one kernel if you write them
yourself, even with other operations on the scores.

```python
import graphdnn
from graphdnn import NormPhase, ReductionOperator, ResampleMode

graph = graphdnn.Graph("block", io_data_type="float32")
x, scale, bias = graph.tensor([8, 16, 28, 28]), graph.tensor([1, 16, 1, 1]), graph.tensor([1, 16, 1, 1])
y, *_ = graph.instancenorm(NormPhase.INFERENCE, x, scale, bias, graph.tensor_scalar(1e-5))  # epsilon is a tensor
pooled, _ = graph.resample(graph.relu(y), ResampleMode.MAXPOOL, window=[2, 2])
pooled.set_output(True)
sums = graph.reduction(pooled, ReductionOperator.ADD).set_dim([8, 16, 1, 1]).set_output(True)
graph.build()
```"""


def page(note: str, table: Table) -> str:
    parts = ["# The graph builder", note, _INTRODUCTION]
    seen: set[str] = set()
    for title, (module, first) in _SECTIONS.items():
        names = [name for name in dict.fromkeys((*first, *_of_module(module))) if name not in seen]
        seen |= {*names}
        parts += [f"## {title}", table(("method", "what it does"), (_row(name) for name in names if _has(name)))]
        if title == "Operations":
            parts += ["Elementwise operations, by their operands:", table(("operands", "methods"), _elementwise())]
        if title == "Extension operations":
            parts.append(_RECURRENT)
    setters = [name for name in vars(Tensor) if name.startswith("set_")]
    listed = ", ".join(
        f"`{name}({', '.join(list(inspect.signature(getattr(Tensor, name)).parameters)[1:])})`" for name in setters
    )
    parts += ["## Of a tensor", f"{listed}: each returns the tensor, and a `get_` method reads the same."]
    return "\n\n".join(parts) + "\n"


def _of_module(module: str) -> list[str]:
    """The public methods that one part of the builder defines, elementwise ones apart."""
    if not module:
        return []
    return [
        name
        for name, member in vars(Graph).items()
        if getattr(member, "__module__", "") == f"graphdnn.builder.{module}" and name not in POINTWISE_METHODS
    ]


def _has(name: str) -> bool:
    return bool(getattr(Graph, name, None)) and bool(inspect.getdoc(getattr(Graph, name)))


def _row(name: str) -> tuple[str, str]:
    member = getattr(Graph, name)
    text = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
    return f"`{name}{'' if isinstance(member, property) else _arguments(member)}`", text


def _arguments(member: Any) -> str:
    parts, named_only = [], False
    for parameter in inspect.signature(member).parameters.values():
        if parameter.name in _EVERYWHERE:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not named_only:
            parts.append("*")
            named_only = True
        stars = {parameter.VAR_KEYWORD: "**", parameter.VAR_POSITIONAL: "*"}.get(parameter.kind, "")
        default = "" if parameter.default is parameter.empty else f"={parameter.default!s}"
        parts.append(f"{stars}{parameter.name}{default or ''}")
    return f"({', '.join(parts)})"


def _elementwise() -> Iterable[tuple[str, str]]:
    """Methods that take the same operands and parameters, in a row."""
    found: dict[str, list[str]] = {}
    for name in POINTWISE_METHODS:
        found.setdefault(_arguments(getattr(Graph, name)), []).append(f"`{name}`")
    return ((f"`{arguments}`", ", ".join(names)) for arguments, names in found.items())
