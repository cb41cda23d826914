"""Docstrings of the legacy calls, generated from the rows of the function table."""

from __future__ import annotations

from graphdnn.v6.functions import PLAIN, Function, Parameter

_DATA = "memory as its descriptor says: a NumPy array, an object with DLPack, an array of the GPU, or an address"
_MEANINGS = {
    "Handle": "a handle that ``cudnnCreate`` returned",
    "TensorDescriptor[]": "a list of tensor descriptors",
    "int": "an integer",
    "ints": "a list of integers",
    "size": "a number of bytes",
    "float": "a number",
    "scalar": "a number, or a ctypes pointer to one",
    "data": f"{_DATA}. It is read",
    "out": f"{_DATA}. It is written",
    "inout": f"{_DATA}. The call writes ``alpha * result + beta * old contents``; with ``beta == 0`` it reads nothing",
    "workspace": "contiguous memory, or None. A call allocates for itself if the workspace is missing or too small",
    "cudaStream": "the address of a stream, an object with ``ptr``, or 0 for the default stream",
    "address": "an address, or an array on the host",
    "perfs": "a list of records with ``algo``, ``status``, ``time`` in milliseconds and ``memory`` in bytes",
    "RuntimeTag": "a ``cudnnRuntimeTag_t``",
    "PersistentRNNPlan": "a plan that ``cudnnCreatePersistentRNNPlan`` returned",
}


def c_form(row: Function) -> str:
    """``cudnnCreateTensorDescriptor() -> tensorDesc``"""
    return f"{row.name}({', '.join(p.name for p in row.inputs)}) -> {', '.join(p.name for p in row.results) or 'None'}"


def docstring(row: Function) -> str:
    """The C form of a call, its release, its parameters, its results, its statuses, and the source of its formula."""
    parts = [c_form(row), _origin(row)]
    if row.inputs:
        parts.append("Args:\n" + "\n".join(f"    {p.name}: {_sentence(p)}" for p in row.inputs))
    if row.results:
        parts.append(f"Returns:\n    {'; '.join(f'``{p.name}``, {_meaning(p)}' for p in row.results)}.")
    if row.name in PLAIN:
        parts.append("Returns:\n    The value itself, as in C. The call has no status.")
    else:
        statuses = ", ".join(f"``CUDNN_STATUS_{status}``" for status in row.statuses)
        documented = f" The documented statuses are {statuses}." if statuses else ""
        parts.append(f"Raises:\n    CudnnError: The status is not ``CUDNN_STATUS_SUCCESS``.{documented}")
    return "\n\n".join(parts) + "\n"


def _origin(row: Function) -> str:
    since = "cuDNN 5.1 or earlier" if row.since == "5.1" else f"cuDNN {row.since}"
    source = f"section {row.section} of the cuDNN 5.1 manual" if row.section != "-" else "the cuDNN documentation"
    other = f" The call does what ``{row.alias_of}`` does." if row.alias_of else ""
    return f"Since {since}. Source: {source}.{other}"


def _sentence(parameter: Parameter) -> str:
    text = _meaning(parameter)
    left_out = " It may be left out." if parameter.optional else ""
    nothing = " None is accepted." if parameter.nullable and parameter.kind != "workspace" else ""
    return f"{text[0].upper()}{text[1:]}.{nothing}{left_out}"


def _meaning(parameter: Parameter) -> str:
    kind = parameter.kind
    if kind in _MEANINGS:
        return _MEANINGS[kind]
    if kind.endswith("Descriptor"):
        return f"a ``cudnn{kind}_t``"
    name = kind if kind == "libraryPropertyType" else f"cudnn{kind}_t"
    return f"a member of ``{name}``, its number or its name"
