"""From a problem text to a graph."""

from __future__ import annotations

import re

from graphdnn.builder import Graph
from graphdnn.problem.operation_parser import OPERATIONS
from graphdnn.problem.step_parser import step_names, with_exit, with_step
from graphdnn.problem.tokens import SYNTAX, Part, Words, refuse, type_of, unknown

_WORD = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\S+)|(?P<bare>[A-Za-z_]\w*)")
_ELSEWHERE = {
    **dict.fromkeys(("gemm", "mm", "bmm", "linear", "dense"), "matmul"),
    **dict.fromkeys(("deconv", "deconvolution", "conv_transpose", "conv_transpose2d"), "dgrad"),
    "batchnorm": "norm batch", "batch_norm": "norm batch", "layernorm": "norm layer", "layer_norm": "norm layer",
    "instancenorm": "norm instance", "rmsnorm": "norm rms", "rms_norm": "norm rms",
    "maxpool": "pool max", "max_pool2d": "pool max", "avgpool": "pool avg", "avg_pool2d": "pool avg",
}  # fmt: skip  # what operations are called elsewhere
_IN_PYTHON = ("softmax", "log_softmax", "attention", "sdpa", "lstm", "gru", "rnn")


def parse(text: str) -> Graph:
    """Make a graph from a problem that is written as one line, for example ``conv x=f16[8,64,56,56] w=f16[64,64,3,3]
    pad=1 + relu``.

    Args:
        text: The line.

    Returns:
        The graph, validated and not yet built.

    Raises:
        BadParam: The line cannot be read. The error names the column.
    """
    head, *steps, exit = _split(text)
    operation, words = _words(head, text)
    compute, out = words.take("compute"), words.take("out")
    graph = Graph(
        name=" + ".join((operation, *steps)) + (f" -> {exit}" if exit else ""),
        compute_data_type=None if compute is None else type_of(compute, text, "compute"),
    )
    value = OPERATIONS[operation](graph, words)
    words.finish(step_names())
    for step in steps:
        value = with_step(graph, value, step, words)
    if exit:
        value = with_exit(graph, value, exit, text)
    if value.get_is_virtual():
        value.set_output(True)
    else:
        value = graph.identity(value).set_output(True)
    if out is not None:
        value.set_data_type(type_of(out, text, "out"))
    value.set_name("y" if operation not in ("dgrad", "wgrad") else {"dgrad": "dx", "wgrad": "dw"}[operation])
    graph.validate()
    return graph


def _split(text: str) -> list[Part]:
    """The operation with its words, the steps, and what follows the arrow (empty without one)."""
    end = text.find("->")
    main = len(text) if end < 0 else end
    cuts = [0, *(place for at in _pluses(text[:main]) for place in (at, at + 1)), main]
    parts = [Part.of(text, start, stop) for start, stop in zip(cuts[::2], cuts[1::2], strict=True)]
    exit = Part.of(text, len(text) if end < 0 else end + 2, len(text))
    if end >= 0 and not exit:
        raise refuse(SYNTAX, "exit", "nothing", text, expected="reduce operator [extents] after ->", rest="nothing")
    return [*parts, exit]


def _pluses(text: str) -> list[int]:
    """Where a step begins: at each +, the sign of an exponent in parentheses aside. From the end, in one pass."""
    found, is_inside = [], False
    for at in range(len(text) - 1, -1, -1):
        if text[at] in "()":
            is_inside = text[at] == ")"
        elif text[at] == "+" and not is_inside:
            found.append(at)
    return found[::-1]


def _said(name: str) -> str:
    """Of what is no operation of a text, though it is one elsewhere."""
    if name.lower() in step_names():
        return f"{name} is a step, which follows an operation: 'pointwise x=f32[8,64] + {name.lower()}'; "
    if name.lower() in _ELSEWHERE:
        return f"did you mean {_ELSEWHERE[name.lower()]}? else "
    if name.lower() in _IN_PYTHON:
        return "it has no line: build the graph in Python, and pass the file of graphdnn.graph_to_json; else "
    return ""


def _words(head: Part, text: str) -> tuple[str, Words]:
    parts = [head.group(match, "word") for match in re.finditer(r"(?P<word>\S+)", head)]
    if not parts or parts[0] not in OPERATIONS:
        name = parts[0] if parts else "nothing"
        raise unknown("operation", name, text, tuple(OPERATIONS), _said(name))
    words = Words(text, str(parts[0]))
    for part in parts[1:]:
        match = _WORD.fullmatch(part)
        if not match:
            raise refuse(SYNTAX, "word", part, text, expected="name=value, or a word", rest=part)
        if match["bare"]:
            words.bare.append(part)
        elif match["name"] in words.named:
            raise refuse(SYNTAX, match["name"], part, text, expected="each name once", rest=part)
        else:
            words.named[part.group(match, "name")] = part.group(match, "value")
    return words.operation, words
