"""Hostile calls of the graph builder: every public method, every parameter, every value of ``hostile``.

    python tests/attack/builder_calls.py 100000 [--seed N]

A call has arguments that are right, with one or more of them exchanged. It has to end in a result or in an error of the
library; so has all that is done with the graph behind it. Prints what came out otherwise, and ends with code 1.
"""

from __future__ import annotations

import argparse
import inspect
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from hostile import VALUES

import graphdnn
from graphdnn import Graph, GraphdnnError, graph_to_json, plan_to_json
from graphdnn.builder import Tensor
from graphdnn.operations import RnnSpec

MAPPINGS = ("variant_pack", "inputs", "ranges")
LEFT_OUT = ("autotune",)  # starts processes; its options have tests of their own


def _rnn() -> RnnSpec:
    return RnnSpec(cell="lstm", input_size=4, hidden_size=4, batch_sizes=(2, 2))  # type: ignore[arg-type]


# What a parameter of this name takes, of a graph and its tensors.
RIGHT: dict[str, Callable[[Graph, Tensor], Any]] = {
    "dim": lambda g, t: [2, 4, 6, 6], "mode": lambda g, t: "ADD", "window": lambda g, t: [2, 2], "axis": lambda g, t: 1,
    "permutation": lambda g, t: [0, 2, 3, 1], "slices": lambda g, t: [slice(None)] * 4, "inputs": lambda g, t: [t, t],
    "value": lambda g, t: 1.0, "like": lambda g, t: np.zeros((2, 3), np.float32), "engine_id": lambda g, t: "numpy",
    "index": lambda g, t: 0, "uid": lambda g, t: 1, "names": lambda g, t: "numpy", "notes": lambda g, t: [],
    "workspace": lambda g, t: 1000, "variant_pack": lambda g, t: {}, "subject": lambda g, t: 1,
    "norm_forward_phase": lambda g, t: "TRAINING", "distribution": lambda g, t: "BERNOULLI", "seed": lambda g, t: 3,
    "negative_slope": lambda g, t: 0.1, "rnn": lambda g, t: _rnn(), "is_output": lambda g, t: True,
    "is_virtual": lambda g, t: True, "stride": lambda g, t: [1, 1], "data_type": lambda g, t: "float32", "name": lambda g, t: "n",
    "is_by_value": lambda g, t: True, "alignment": lambda g, t: 16, "reordering": lambda g, t: "NONE", "count": lambda g, t: 4,
    "dimension": lambda g, t: 1, "ragged_offset": lambda g, t: None, "tensor": lambda g, t: t,
}  # fmt: skip
MODES = {"reduction": "ADD", "resample": "MAXPOOL", "resample_backward": "MAXPOOL"}
NEEDS_PLAN = ("execute", "run", "capture", "trace", "certificate", "where", "build_plan_at_index")
NEEDS_INDEX = "_at_index"


@dataclass(frozen=True, slots=True)
class Finding:
    """A foreign exception: where it was raised, in words that are the same for calls alike."""

    method: str
    arguments: str
    error: str


def methods(cls: type) -> dict[str, inspect.Signature]:
    found = {}
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        if not name.startswith("_") and callable(getattr(cls, name)) and name not in LEFT_OUT:
            if isinstance(method, property):
                continue
            found[name] = inspect.signature(getattr(cls, name))
    return found


GRAPH, TENSOR = methods(Graph), methods(Tensor)


def graph() -> tuple[Graph, Tensor]:
    g = Graph("g", io_data_type="float32", compute_data_type="float32")
    return g, g.tensor([2, 4, 6, 6], name="x")


def _arguments(name: str, signature: inspect.Signature, g: Graph, t: Tensor) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for parameter in signature.parameters.values():
        if parameter.name == "self" or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.name == "mode" and name in MODES:
            found["mode"] = MODES[name]
        elif parameter.default is parameter.empty:
            right = RIGHT.get(parameter.name)
            found[parameter.name] = t if right is None else right(g, t)
    if name == "pointwise":
        found |= {"x": t, "b": t}
    if name in NEEDS_PLAN or name.endswith(NEEDS_INDEX) or name.startswith(("get_", "query_")):
        g.relu(t).set_output(True).set_name("y")
        g.create_execution_plans()
        g.build_plans()
    return found


def _after(g: Graph, made: Any) -> None:
    """What one does with a graph: everything that was taken has to be of use."""
    results = made if isinstance(made, list) else [made]
    tensors = [each for each in results if isinstance(each, Tensor)]
    for each in tensors:
        repr(each)
        if each.is_virtual and not each.is_by_value:
            each.set_output(True)
    repr(g), g.validate()
    graph_to_json(g.build_operation_graph())
    plan_to_json(g.build())


def calls(seed: int) -> Iterator[tuple[str, Callable[[], None], str]]:
    """(method, call, how it was called), without end; the first round has each parameter with each value."""
    rng = random.Random(seed)
    owners = [(Graph, n, s) for n, s in GRAPH.items()] + [(Tensor, n, s) for n, s in TENSOR.items()]
    owners.append((None, "Graph", inspect.signature(Graph)))  # type: ignore[arg-type]
    each = [
        (owner, name, signature, (parameter,), (value,))
        for owner, name, signature in owners
        for parameter in signature.parameters
        if parameter != "self"
        for value in VALUES
    ]
    rng.shuffle(each)
    for owner, name, signature, parameters, values in each:
        yield (
            f"{owner.__name__ if owner else ''}.{name}",
            _call(owner, name, signature, parameters, values),
            _shown(parameters, values),
        )
    while True:
        owner, name, signature = rng.choice(owners)
        known = [p for p in signature.parameters if p != "self"]
        if not known:
            continue
        parameters = tuple(rng.sample(known, rng.randint(1, min(3, len(known)))))
        values = tuple(rng.choice(tuple(VALUES)) for _ in parameters)
        yield (
            f"{owner.__name__ if owner else ''}.{name}",
            _call(owner, name, signature, parameters, values),
            _shown(parameters, values),
        )


def _shown(parameters: tuple[str, ...], values: tuple[str, ...]) -> str:
    return ", ".join(f"{p}={v}" for p, v in zip(parameters, values, strict=True))


def _call(
    owner: type | None, name: str, signature: inspect.Signature, parameters: tuple[str, ...], values: tuple[str, ...]
) -> Callable[[], None]:
    def call() -> None:
        changed = {p: VALUES[v]() for p, v in zip(parameters, values, strict=True)}
        kinds = {p: signature.parameters[p].kind for p in parameters}
        for p, kind in kinds.items():
            if kind is inspect.Parameter.VAR_KEYWORD:
                changed["no_such_parameter"] = changed.pop(p)
            elif kind is inspect.Parameter.VAR_POSITIONAL:
                del changed[p]
        if owner is None:
            made = Graph(**changed)
            made.relu(made.tensor([2, 3], data_type="float32")).set_output(True)
            _after(made, None)
            return
        g, t = graph()
        subject = g if owner is Graph else t
        arguments = _arguments(name, signature, g, t) | changed
        made = getattr(subject, name)(**arguments)
        if owner is Tensor:
            g.relu(t).set_output(True)
        _after(g, made)

    return call


def attack(count: int, seed: int) -> tuple[Counter[str], list[Finding]]:
    """Endings by kind, and everything that was no ending."""
    endings: Counter[str] = Counter()
    found: list[Finding] = []
    for number, (method, call, shown) in enumerate(calls(seed)):
        if number == count:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                call()
            endings["accepted"] += 1
        except GraphdnnError as error:
            str(error), [r.to_json() for r in error.rejections]
            endings["refused"] += 1
        except Exception as error:
            endings["foreign"] += 1
            found.append(Finding(method, shown, f"{type(error).__name__}: {last_line(error)}"))
    return endings, found


def last_line(error: BaseException) -> str:
    """Where in the library it was raised, and what it says."""
    where, trace = "", error.__traceback__
    package = graphdnn.__path__[0]
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.startswith(package):
            where = f"{trace.tb_frame.f_code.co_filename[len(package) + 1 :]}:{trace.tb_lineno}"
        trace = trace.tb_next
    try:
        return f"{where} {error}"[:160]
    except Exception:
        return where


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    endings, found = attack(options.count, options.seed)
    kinds: dict[str, list[Finding]] = {}
    for finding in found:
        kinds.setdefault(finding.error.split(" ", 2)[1], []).append(finding)
    for place, those in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"{len(those):5} {place}: {those[0].error}\n        {those[0].method}({those[0].arguments})")
    print(dict(endings), f"{len(kinds)} kinds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
