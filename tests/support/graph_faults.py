"""Faults: one mistake in a legal graph, as people make them, and whether a repair undoes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from random_problems.families import FAMILIES, Case, draw

from graphdnn import Graph, OperationGraph, channels_last_strides, rank
from graphdnn.analysis.diagnostics import of_ranking
from graphdnn.analysis.repairs.draft_validation import Assembler
from graphdnn.analysis.repairs.edit import numbers, strides_for
from graphdnn.analysis.repairs.graph_draft import Draft, Key
from graphdnn.analysis.repairs.repair_search import Target, repairs_of
from graphdnn.builder import Tensor
from graphdnn.device_selection import device_spec
from graphdnn.enums import HeurMode, ReductionOperator
from graphdnn.errors import NotSupported
from graphdnn.heuristics import Filters
from graphdnn.problem import parse

DEVICE = "h200"
SLOWER = 1.03  # a fault that is legal counts where it costs something and was refused something

# Layers as they stand in networks; the drawn graphs add every other operation and odd extents.
LAYERS = (
    "conv x=f16[8,{c},28,28]nhwc w=f16[{k},{c},3,3]nhwc pad=1 + bias + relu",
    "conv x=f16[8,{c},28,28]nhwc w=f16[{k},{c},1,1]nhwc + bias + residual + relu",
    "conv x=f16[4,{c},56,56]nhwc w=f16[{k},{c},3,3]nhwc pad=1 stride=2 + scale + bias + relu",
    "conv x=f32[4,{c},28,28] w=f32[{k},{c},3,3] pad=1 + bias + relu",
    "conv x=i8[8,{c},28,28]nhwc w=i8[{k},{c},3,3]nhwc pad=1 compute=i32 out=i8 + bias + relu",
    "conv x=i16[2,{c},28,28]nhwc w=i16[{k},{c},3,3]nhwc pad=1 compute=i64 out=i64",
    "conv x=f16[8,{c},28,28]nhwc w=f16[{c},1,3,3]nhwc pad=1 + bias + relu(0,6)",
    "conv x=f16[4,2,{c},14,14] w=f16[2,{k},{c},3,3] pad=1 spatial=2 + bias",
    "dgrad dy=f16[8,{k},28,28]nhwc w=f16[{k},{c},3,3]nhwc dx=[8,{c},28,28] pad=1",
    "wgrad x=f16[8,{c},28,28]nhwc dy=f16[8,{k},28,28]nhwc dw=[{k},{c},3,3] pad=1",
    "conv x=bf16[8,{c},28,28]nhwc w=bf16[{k},{c},3,3]nhwc pad=1 + bias + relu -> reduce add [1,{k},1,1]",
    "matmul a=f16[16,{c},64] b=f16[16,64,{k}] + bias + gelu",
    "matmul a=f32[1,{c},128] b=f32[1,128,{k}]",
    "pool max x=f16[8,{c},56,56]nhwc window=3 stride=2 pad=1",
    "pool avg x=f32[8,{c},28,28] window=2 stride=2",
    "reduce add x=f32[8,{c},28,28] y=[1,{c},1,1]",
    "pointwise x=f16[8,{c},28,28]nhwc + mul + tanh",
    "norm layer x=f32[32,{c}]",
)
DRAWN = ("conv_fprop", "conv_dgrad", "conv_wgrad", "conv_fprop_int", "matmul", "pointwise", "pointwise_graph", "reduction",
         "statistics", "resample", "norm", "movement", "graph")  # fmt: skip


def _activated(c: int, k: int) -> Graph:
    """A chain in front of a convolution."""
    graph = Graph("activated", io_data_type="float16")
    x, w = _image(graph, c), _image(graph, c, (k, 3, 3))
    graph.conv_fprop(graph.relu(graph.scale(x, _image(graph, c, (1, 1, 1)))), w, padding=[1, 1]).set_output(True)
    return graph


def _block(c: int, k: int) -> Graph:
    """Two convolutions and what is added to their result."""
    graph = Graph("block", io_data_type="float16")
    x, first, second = _image(graph, c), _image(graph, c, (k, 3, 3)), _image(graph, k, (c, 1, 1))
    inner = graph.relu(graph.bias(graph.conv_fprop(x, first, padding=[1, 1]), _image(graph, k, (1, 1, 1))))
    graph.relu(graph.add(graph.conv_fprop(inner, second), x)).set_output(True)
    return graph


def _attention(c: int, k: int) -> Graph:
    """A product, its softmax, and a product."""
    graph = Graph("attention", io_data_type="float16", intermediate_data_type="float32")
    q, keys, values = (graph.tensor(dims) for dims in ([8, k, c], [8, c, k], [8, k, c]))
    scores = graph.matmul(q, keys)
    apart = graph.exp(graph.sub(scores, graph.reduction(scores, ReductionOperator.MAX).set_dim([8, k, 1])))
    rows = graph.div(apart, graph.reduction(apart, ReductionOperator.ADD).set_dim([8, k, 1]))
    graph.matmul(rows, values).set_output(True)
    return graph


def _image(graph: Graph, c: int, rest: tuple[int, int, int] = (8, 28, 28)) -> Tensor:
    dims = (rest[0], c, *rest[1:])
    return graph.tensor(dims, channels_last_strides(dims))


NETWORKS = (_activated, _activated, _block, _attention)


def legal_graph(rng: np.random.Generator, seed: int) -> OperationGraph:
    """A layer, a part of a network, or every third time a drawn graph."""
    if seed % 3 == 0:
        family = DRAWN[int(rng.integers(len(DRAWN)))]
        assert family in FAMILIES
        return draw(Case(family, seed, large=True)).graph
    c, k = (int(rng.choice((16, 32, 64, 96, 128, 256))) for _ in range(2))
    if seed % 3 == 1 and rng.random() < 0.5:
        return NETWORKS[int(rng.integers(len(NETWORKS)))](c, k).build_operation_graph()
    text = LAYERS[int(rng.integers(len(LAYERS)))]
    return parse(text.format(c=c, k=k)).build_operation_graph()


# One mistake each: a draft, changed in place, and what was done; None where the graph has no place for it.

Fault = Callable[[Draft, np.random.Generator], "str | None"]


def _one(rng: np.random.Generator, items: Any) -> Any:
    items = list(items)
    return items[int(rng.integers(len(items)))] if items else None


def _used(draft: Draft) -> list[Key]:
    return [k for k in draft.tensors if any(k in draft.all_ports(i).values() for i in range(len(draft.operations)))]


def _resize(draft: Draft, key: Key, axis: int, extent: int) -> None:
    entry = draft.tensors[key]
    dims = numbers(entry["dims"])
    new = [*dims[:axis], extent, *dims[axis + 1 :]]
    entry["strides"], entry["dims"] = strides_for(new, dims, numbers(entry["strides"])), new


def result_extent(draft: Draft, rng: np.random.Generator) -> str | None:
    """An output that is one longer or shorter along an axis."""
    index = int(rng.integers(len(draft.operations)))
    key = _one(rng, draft.ports(index, "output").values())
    axes = [a for a, extent in enumerate(numbers(draft.tensors[key]["dims"])) if extent > 2]
    axis = _one(rng, axes)
    if axis is None:
        return None
    old = draft.tensors[key]["dims"][axis]
    _resize(draft, key, axis, old + int(rng.choice((-1, 1))))
    return f"dims[{axis}] of {draft.tensor_label(key)}"


def channel_count(draft: Draft, rng: np.random.Generator) -> str | None:
    """Channels of an operand: one off, or half or twice as many."""
    reads = [k for k in _used(draft) if k not in draft.writers() and len(numbers(draft.tensors[k]["dims"])) > 1]
    key = _one(rng, [k for k in reads if draft.tensors[k]["dims"][1] > 3])
    if key is None:
        return None
    old = draft.tensors[key]["dims"][1]
    _resize(draft, key, 1, int(rng.choice((old - 1, old + 1, old * 2, max(1, old // 2)))))
    return f"channels of {draft.tensor_label(key)}"


def filter_count(draft: Draft, rng: np.random.Generator) -> str | None:
    """Filters of w that do not fit to y."""
    for index, op in enumerate(draft.operations):
        if (
            op["operation"].startswith("conv_")
            and "w" in op
            and numbers(draft.tensors[op["w"]["tensor"]]["dims"])[0] > 3
        ):
            key = op["w"]["tensor"]
            old = draft.tensors[key]["dims"][0]
            _resize(draft, key, 0, old + int(rng.choice((-1, 1))))
            return f"filters of {draft.label(index)}"
    return None


def group_axis(draft: Draft, rng: np.random.Generator) -> str | None:
    """A group axis that is longer in one of the tensors."""
    for op in draft.operations:
        conv = op.get("conv")
        if isinstance(conv, dict):
            ports = [p for p in ("x", "w", "y", "dy", "dx", "dw") if p in op]
            key = op[_one(rng, ports)]["tensor"]
            dims = numbers(draft.tensors[key]["dims"])
            if len(dims) == conv["spatial_dims"] + 3:
                axis = 0 if key in (op.get("w", {}).get("tensor"), op.get("dw", {}).get("tensor")) else 1
                _resize(draft, key, axis, dims[axis] + 1)
                return f"groups of {draft.tensor_label(key)}"
    return None


def data_type(draft: Draft, rng: np.random.Generator) -> str | None:
    key = _one(rng, _used(draft))
    entry = draft.tensors[key]
    entry["data_type"] = _one(rng, {"FLOAT", "HALF", "INT8", "DOUBLE", "INT32"} - {entry["data_type"]})
    return f"type of {draft.tensor_label(key)}"


def compute_type(draft: Draft, rng: np.random.Generator) -> str | None:
    for index in rng.permutation(len(draft.operations)):
        op = draft.operations[int(index)]
        for setting, field in (("conv", "compute_type"), ("spec", "compute_type"), ("spec", "math_type")):
            if field in op.get(setting, {}):
                wrong = {"INT8", "INT32", "DOUBLE", "FLOAT", "BOOLEAN"} - {op[setting][field]}
                op[setting][field] = _one(rng, sorted(wrong))
                return f"arithmetic of {draft.label(int(index))}"
    return None


def swapped_strides(draft: Draft, rng: np.random.Generator) -> str | None:
    key = _one(rng, [k for k in _used(draft) if sum(d > 1 for d in numbers(draft.tensors[k]["dims"])) > 1])
    if key is None:
        return None
    entry = draft.tensors[key]
    axes = [a for a, d in enumerate(entry["dims"]) if d > 1]
    a, b = rng.choice(axes, 2, replace=False)
    strides = list(entry["strides"])
    strides[a], strides[b] = strides[b], strides[a]
    entry["strides"] = strides
    return f"strides of {draft.tensor_label(key)}"


def short_strides(draft: Draft, rng: np.random.Generator) -> str | None:
    key = _one(rng, [k for k in _used(draft) if len(numbers(draft.tensors[k]["dims"])) > 1])
    if key is None:
        return None
    entry = draft.tensors[key]
    entry["strides"] = entry["strides"][1:] if rng.random() < 0.5 else [0, *entry["strides"][1:]]
    return f"strides of {draft.tensor_label(key)}"


def alignment(draft: Draft, rng: np.random.Generator) -> str | None:
    key = _one(rng, _used(draft))
    draft.tensors[key]["byte_alignment"] = int(rng.choice((0, 1, 3, -16, 5)))
    return f"alignment of {draft.tensor_label(key)}"


def virtual_from_outside(draft: Draft, rng: np.random.Generator) -> str | None:
    """An operand, or a result at the end, that is marked virtual."""
    writers, readers = draft.writers(), draft.readers()
    key = _one(
        rng,
        [k for k in _used(draft) if (k not in writers) != (k not in readers) and "is_by_value" not in draft.tensors[k]],
    )
    if key is None or draft.tensors[key].get("is_virtual"):
        return None
    draft.tensors[key]["is_virtual"] = True
    return f"is_virtual of {draft.tensor_label(key)}"


def virtual_in_memory(draft: Draft, rng: np.random.Generator) -> str | None:
    """A value between operations that got memory."""
    key = _one(rng, [k for k in _used(draft) if draft.tensors[k].get("is_virtual")])
    if key is None:
        return None
    draft.tensors[key].pop("is_virtual")
    return f"is_virtual of {draft.tensor_label(key)}"


def by_value(draft: Draft, rng: np.random.Generator) -> str | None:
    key = _one(rng, [k for k in _used(draft) if "is_by_value" not in draft.tensors[k]])
    if key is None:
        return None
    draft.tensors[key]["is_by_value"] = True
    return f"is_by_value of {draft.tensor_label(key)}"


def shared_uid(draft: Draft, rng: np.random.Generator) -> str | None:
    """Two tensors that were given one uid."""
    used = _used(draft)
    if len(used) < 2:
        return None
    a, b = rng.choice(len(used), 2, replace=False)
    draft.tensors[used[a]]["uid"] = draft.tensors[used[b]]["uid"]
    return f"uid of {draft.tensor_label(used[a])}"


def wrong_result(draft: Draft, rng: np.random.Generator) -> str | None:
    """An operation that writes the tensor another one writes."""
    if len(draft.operations) < 2:
        return None
    first, second = sorted(rng.choice(len(draft.operations), 2, replace=False))
    (port, *_), key = draft.ports(int(second), "output"), _one(rng, draft.ports(int(first), "output").values())
    draft.connect(int(second), port, key)
    return f"{port} of {draft.label(int(second))}"


def beta(draft: Draft, rng: np.random.Generator) -> str | None:
    index = _one(rng, [i for i, op in enumerate(draft.operations) if op["operation"].startswith("conv_")])
    if index is None or len(draft.operations) < 2:
        return None
    draft.operations[index]["beta"] = 1.0
    return f"beta of {draft.label(index)}"


def vectors(draft: Draft, rng: np.random.Generator) -> str | None:
    key = _one(rng, _used(draft))
    if "vector_count" in draft.tensors[key]:
        return None
    draft.tensors[key][_one(rng, ("vector_count", "vectorized_dimension"))] = int(rng.choice((4, 7, 32)))
    return f"vectors of {draft.tensor_label(key)}"


def setting(draft: Draft, rng: np.random.Generator, *, kind: str) -> str | None:
    """Padding, stride, dilation or window: the sign, the number of entries, or the value."""
    index = _one(
        rng, [i for i, op in enumerate(draft.operations) if "conv" in op or op["operation"].startswith("resample")]
    )
    if index is None:
        return None
    fields = draft.operations[index].get("conv") or draft.operations[index]["spec"]
    name = _one(rng, [n for n, v in fields.items() if len(numbers(v)) == fields.get("spatial_dims")])
    if name is None:
        return None
    values = list(fields[name])
    axis = int(rng.integers(len(values)))
    if kind == "sign":
        if values[axis] == 0:
            return None
        values[axis] = -values[axis]
    elif kind == "length":
        values = values[1:] or [*values, 1]
    else:
        values[axis] += 1
    fields[name] = values
    return f"{name} of {draft.label(index)}"


def unread(draft: Draft, rng: np.random.Generator) -> str | None:
    """A parameter that the mode does not have."""
    index = _one(rng, [i for i, op in enumerate(draft.operations) if op["operation"] == "pointwise"])
    if index is None:
        return None
    spec = draft.operations[index]["spec"]
    name = _one(rng, {"elu_alpha", "swish_beta", "softplus_beta"} - set(spec))
    spec[name] = 0.25
    return f"{name} of {draft.label(index)}"


FAULTS: dict[str, Fault] = {
    "result extent": result_extent,
    "channel count": channel_count,
    "filter count": filter_count,
    "group axis": group_axis,
    "data type": data_type,
    "compute type": compute_type,
    "swapped strides": swapped_strides,
    "short strides": short_strides,
    "alignment": alignment,
    "virtual from outside": virtual_from_outside,
    "virtual in memory": virtual_in_memory,
    "by value": by_value,
    "shared uid": shared_uid,
    "wrong result": wrong_result,
    "beta": beta,
    "vectors": vectors,
    "setting sign": partial(setting, kind="sign"),
    "setting length": partial(setting, kind="length"),
    "setting value": partial(setting, kind="value"),
    "unread parameter": unread,
}


# Where the graph stays legal, these make another problem of it, and nobody can know which one was meant.
OTHER_PROBLEM = ("result extent", "channel count", "filter count", "group axis", "setting value")


@dataclass(frozen=True)
class Outcome:
    """What became of one fault."""

    seed: int
    kind: str
    said: str  # where the fault is
    rules: tuple[str, ...]  # that refuse it; empty for one that only costs time
    place: int  # of the suggestion that undoes it, from 1; 0 where none does
    first: str
    count: int

    def __str__(self) -> str:
        return f"{self.seed} {self.kind}: {self.said} {self.rules} -> {self.place} of {self.count}: {self.first}"


def behaviour(graph: OperationGraph) -> object:
    """What two graphs that count as the same agree in."""
    ranking = rank(graph, DEVICE)
    try:
        configs = [(c.name, round(c.predicted_seconds * 1e9, 3)) for c in [ranking.best]]
    except NotSupported:
        configs = []
    kernels = [tuple(op.tag for op in kernel.operations) for kernel in ranking.fused]
    bound = [(t.dims, t.strides, t.data_type, t.is_by_value) for t in graph.bound]
    return configs, kernels, sorted(map(str, bound))


def _costs(graph: OperationGraph, original: OperationGraph) -> bool:
    """A legal graph with a fault: something more is refused, and it is slower."""
    ours, theirs = rank(graph, DEVICE), rank(original, DEVICE)
    try:
        slower = ours.best.predicted_seconds > SLOWER * theirs.best.predicted_seconds
    except NotSupported:
        return True
    refused = {(e.rule, e.subject.engine) for e in of_ranking(ours)} - {
        (e.rule, e.subject.engine) for e in of_ranking(theirs)
    }
    return slower and bool(refused)


def attempt(seed: int, kind: str = "") -> Outcome | None:
    """Draw a graph, make one fault in it, ask for repairs. None where the graph has no place for the fault, or it costs nothing."""
    rng = np.random.default_rng([17, seed])
    graph = legal_graph(rng, seed)
    kind = kind or list(FAULTS)[seed % len(FAULTS)]
    draft = Draft.of_graph(graph)
    said = FAULTS[kind](draft, rng)
    if said is None:
        return None
    assembly = Assembler().assemble(draft)
    if assembly.graph is not None and (
        kind in OTHER_PROBLEM or assembly.graph.key == graph.key or not _costs(assembly.graph, graph)
    ):
        return None
    found = repairs_of(draft, Target(device_spec(DEVICE), HeurMode.A, Filters()))
    wanted = behaviour(graph)
    places = (i for i, r in enumerate(found, start=1) if r.graph.key == graph.key or behaviour(r.graph) == wanted)
    rules = tuple(dict.fromkeys(p.rule for p in assembly.problems))
    first = found[0].words if len(found) else "nothing"
    return Outcome(seed, kind, said, rules, next(places, 0), first, len(found))


def outcomes(count: int, start: int = 0) -> Iterator[Outcome]:
    """``count`` faults that were found, the kinds in turn."""
    seed, found = start, 0
    while found < count:
        outcome = attempt(seed)
        seed += 1
        if outcome is not None:
            found += 1
            yield outcome


def report(found: list[Outcome]) -> str:
    """The rate for each kind of fault."""
    lines = []
    for kind in FAULTS:
        mine = [o for o in found if o.kind == kind]
        if mine:
            first, any_place = sum(o.place == 1 for o in mine), sum(o.place > 0 for o in mine)
            lines.append(f"{kind:22} {first:3} of {len(mine):3} by the first suggestion, {any_place:3} by one of them")
    first = sum(o.place == 1 for o in found)
    lines.append(f"{'all':22} {first:3} of {len(found):3} by the first suggestion ({100 * first / len(found):.1f} %)")
    return "\n".join(lines)
