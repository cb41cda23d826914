"""Edits of element types and of the types that arithmetic is done in."""

from __future__ import annotations

from collections.abc import Iterator

from graphdnn.analysis.repairs.edit import Case, Edit
from graphdnn.analysis.repairs.graph_draft import Key
from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType

_ARITHMETIC = ("FLOAT", "INT32", "INT64", "DOUBLE", "BOOLEAN")
_FIELDS = (("conv", "compute_type"), ("spec", "compute_type"), ("spec", "math_type"), ("", "math_type"))


def compute_type(case: Case) -> Iterator[Edit]:
    """Another type of the arithmetic; first the one that the operands and the rest of the graph suggest."""
    for index in case.operations:
        op = case.draft.operations[index]
        for setting, field in _FIELDS:
            fields = op.get(setting) if setting else op
            if not isinstance(fields, dict) or field not in fields:
                continue
            natural = _natural(case, index)
            for i, kind in enumerate(sorted(_ARITHMETIC, key=lambda kind: kind != natural)):
                if fields[field] != kind:
                    words = f"{field} of {case.draft.label(index)}: {kind}" + _remark(kind)
                    weight = 1.0 + 0.1 * i + 0.4 * _one_is_odd(case, index, str(fields[field]))
                    yield case.with_setting("types.compute", words, weight, index, setting, **{field: kind})


def _one_is_odd(case: Case, index: int, arithmetic: str) -> bool:
    """An integer arithmetic that holds some operands and not the others: then an operand is the likelier mistake."""
    specs = [case.spec(key) for key in case.draft.ports(index, "input").values()]
    whole = [ELEMENTS[t.data_type].kind == "int" for t in specs if t is not None]
    return arithmetic in ("INT32", "INT64") and any(whole) and not all(whole)


def _remark(kind: str) -> str:
    return {
        "INT32": ", which wraps modulo 2^32",
        "INT64": ", which loses no bit of a sum of integers",
    }.get(kind, "")


def _natural(case: Case, index: int) -> str:
    """INT32 or INT64 where everything read is an integer, DOUBLE where something is one, else FLOAT."""
    read = [case.spec(key) for key in case.draft.ports(index, "input").values()]
    written = [case.spec(key) for key in case.draft.ports(index, "output").values()]
    kinds = [t.data_type for t in read if t is not None]
    if kinds and all(k is DataType.BOOLEAN for k in kinds):
        return "BOOLEAN"
    if kinds and all(ELEMENTS[k].kind == "int" for k in kinds):
        results = [t.data_type for t in written if t is not None]
        return "INT64" if DataType.INT64 in (*kinds, *results) else "INT32"
    return "DOUBLE" if DataType.DOUBLE in kinds else "FLOAT"


def data_type(case: Case) -> Iterator[Edit]:
    """A tensor gets the type of another one of the operation; an index INT8, a seed INT64."""
    common = case.values("data_type")
    for index in case.operations:
        mine = case.ports[index]
        kinds = dict.fromkeys(str(case.draft.tensors[key].get("data_type")) for key in mine.values())
        for port, key in mine.items():
            old = str(case.draft.tensors[key].get("data_type"))
            by_port = {"index": "INT8", "seed": "INT64", "offset": "INT64"}.get(port)
            for kind in dict.fromkeys((*((by_port,) if by_port else ()), *kinds)):
                if kind != old:
                    yield _typed(case, key, kind, 1.2 - 0.1 * (common.get(kind, 0) > common.get(old, 0)))


def storage_type(case: Case) -> Iterator[Edit]:
    """A tensor whose type cannot be stored gets one that can."""
    for key in case.tensors:
        for i, kind in enumerate(sorted(case.values("data_type"), key=lambda k: -case.values("data_type")[k])):
            if kind in DataType.__members__ and DataType[kind] in ELEMENTS:
                yield _typed(case, key, kind, 1.2 + 0.05 * i, "types.storage")


def _typed(case: Case, key: Key, kind: str, weight: float, row: str = "types.tensor") -> Edit:
    words = f"store {case.draft.tensor_label(key)} as {kind}"
    return case.with_tensor(row, words, weight, key, data_type=kind)


def operand_types(case: Case) -> Iterator[Edit]:
    """All tensors that an operation reads get the type of one of them."""
    for index in case.operations:
        read = dict.fromkeys(case.draft.ports(index, "input").values())
        kinds = dict.fromkeys(str(case.draft.tensors[key].get("data_type")) for key in read)
        if len(kinds) < 2:
            continue
        for i, kind in enumerate(kinds):
            draft = case.draft.copy()
            for key in read:
                draft.tensors[key]["data_type"] = kind
            yield Edit(
                "types.operands", f"store all operands of {case.draft.label(index)} as {kind}", draft, 1.5 + 0.1 * i
            )
