"""The page of ONNX models: how a model becomes graphs, and every operator that is served, from the table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from textwrap import dedent

from graphdnn.onnx.operators import FAMILIES, OPERATORS, Operator
from graphdnn.onnx.operators.table import NEWEST

Table = Callable[[Iterable[str], Iterable[Iterable[object]]], str]


def page(note: str, table: Table) -> str:
    """The page."""
    parts = ["# ONNX models", note, _introduction()]
    rows = [row for rows in OPERATORS.values() for row in rows]
    for family in FAMILIES:
        own = [row for row in rows if row.lower.__module__ == family.__name__]
        title = family.__name__.rpartition(".")[2].replace("_", " ").capitalize()
        parts.append(f"### {title}\n\n{(family.__doc__ or '').strip().splitlines()[0]}")
        cells = [
            (f"`{row.op_type}`", _versions(row), _by_value(row), _needs(row))
            for row in sorted(own, key=lambda row: (row.op_type, row.since))
        ]
        parts.append(table(("operator", "versions", "operands by value", "needs"), cells))
    return "\n\n".join(parts) + "\n"


def _versions(row: Operator) -> str:
    if row.until == NEWEST:
        return "all" if row.since == 1 else f"from {row.since}"
    return f"to {row.until}" if row.since == 1 else f"{row.since} to {row.until}"


def _by_value(row: Operator) -> str:
    return ", ".join(map(str, row.by_value))


def _needs(row: Operator) -> str:
    needs = [f"{need.attribute}: {str(need.check) or 'none'} ({need.reason})" for need in row.needs]
    return "; ".join(needs)


def _introduction() -> str:
    operators = len(OPERATORS)
    return dedent(
        f"""\
        `graphdnn.onnx` runs ONNX models on graphdnn's plans. It needs the package onnx: `pip install 'graphdnn[onnx]'`.

        ```
        graphdnn inspect model.onnx --device h200       # kernels, engines, predicted times, and what is not served
        graphdnn run model.onnx --shape x=1,3,224,224   # runs the model, and compares it with another implementation
        ```

        In Python, `graphdnn.onnx.load("model.onnx")` gives a `Model`; `model.run({{"x": array}})` returns the outputs
        by name, and `model.explain()` shows the parts with their plans.
        [Example 16](../examples/16_onnx_model.py) does this with a small network.

        ## How a model becomes graphs

        1. The file is parsed and checked. External data are read from the folder of the model and from nowhere else.
        2. The model is specialized for the shapes of its inputs. Nodes with constant operands are folded by ONNX's
           reference evaluator. Shapes follow from ONNX's own inference. `If`, `Loop` and `Scan` are replaced by the
           branch or by a copy of the body for each step, if the condition is known. A function without a row in the
           tables below is replaced by its body.
        3. A `BatchNormalization` behind a convolution with constant weights becomes part of these weights. A `Pad` with
           zeros becomes padding of the convolution behind it.
        4. Connected nodes that the tables serve become one `graphdnn.Graph`. The groups are convex: no path leaves a
           group and enters it again. Fusion, ranking and plans are the ones of every graph.
        5. Constants are bound to the plans once.

        A model with open extents is specialized when it first runs with new shapes. Later runs with the same shapes
        reuse the plans. An input that decides a shape, such as the shape operand of a `Reshape`, counts by its value
        if it has at most 4096 elements; the column *operands by value* lists these operands.

        ## What is not served

        A node without a lowering is refused, and the error names every such node with attribute, value, expected value,
        reason and fix. With `fallback="reference"` ONNX's reference evaluator runs these nodes, and `explain()` says
        which ones. Strings, sequences, optional values and complex numbers have no engine.

        ## Types

        The engines have fp64, fp32, fp16, bf16, fp8 (E4M3FN, E5M2), int8, uint8, int16, int32, int64 and booleans. A
        larger integer carries UINT16, UINT32 and the integers of 4 and 2 bits; arithmetic on integers wraps as in
        ONNX. INT64 carries the bits of UINT64. The types FLOAT8E4M3FNUZ, FLOAT8E5M2FNUZ, FLOAT4E2M1 and FLOAT8E8M0
        are read, and nothing rounds to them.

        ## In place of onnxruntime

        `graphdnn.onnx.InferenceSession` has the methods of onnxruntime's class. `graphdnn.onnx.as_onnxruntime()` lets
        `import onnxruntime` give this class to packages that ship models, until the end of a `with` block.
        `graphdnn.onnx.backend` is the adaptor of `onnx.backend.base`.

        ## Operators

        There are {operators} operators with a lowering. Versions are versions of the operator set. A need is a
        condition on a node: the attribute, its expected value, and the reason in parentheses."""
    )
