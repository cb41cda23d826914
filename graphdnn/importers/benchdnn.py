"""Lines of oneDNN's benchdnn, convolution driver: options, then a descriptor such as ``mb64ic64oc64ih56kh3ph1n"name"``.

Options stay in force on the lines that follow, as in benchdnn's own batch files, until ``--reset`` or a new command.
Descriptors: extents that are left out follow (``ow`` from ``oh``, outputs from the padding, padding from the output),
the minibatch is 2 unless said, dilations count the gaps. What says only how benchdnn runs is passed over: ``IGNORED``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from graphdnn.errors import BadParam, Rejection
from graphdnn.importers.convolution_problem import (
    BIAS,
    DATA,
    FILTER,
    FORWARD,
    Convolution,
    Extents,
    problems,
    symmetric,
)
from graphdnn.importers.import_result import MISSING, UNKNOWN, VALUE, Imported, Problem, Refusal

# How benchdnn runs and reports, nothing of the problem.
IGNORED = frozenset(
    (
        "mode", "engine", "v", "verbose", "max-ms-per-prb", "fix-times-per-prb", "skip-impl", "impl", "canonical",
        "perf-template", "fast-ref", "fast-ref-gpu", "allow-unimpl", "allow-enum-tags-only", "mem-check", "memory-kind",
        "buffer-prefix", "cold-cache", "ctx-init", "ctx-exe", "attr-scratchpad", "alg", "global-impl", "num-streams",
        "repeats-per-prb", "start", "summary", "execution-mode",
    )
)  # fmt: skip
DIRECTIONS = {
    "FWD_B": (FORWARD,), "FWD_D": (FORWARD,), "FWD_I": (FORWARD,), "BWD_D": (DATA,), "BWD_W": (FILTER,),
    "BWD_WB": (FILTER, BIAS),
}  # fmt: skip
TYPES = {
    "f64": "f64", "f32": "f32", "f16": "f16", "bf16": "bf16", "s32": "i32", "s8": "i8", "u8": "u8",
    "f8_e4m3": "e4m3", "f8_e5m2": "e5m2",
}  # fmt: skip
LAYOUTS = {
    **dict.fromkeys(("any", "undef"), None),
    **dict.fromkeys(("abx", "abc", "abcd", "abcde", "ncw", "nchw", "ncdhw", "oiw", "oihw", "oidhw", "goihw"), False),
    **dict.fromkeys(("axb", "acb", "acdb", "acdeb", "nwc", "nhwc", "ndhwc", "owi", "ohwi", "odhwi"), True),
}
# Steps that a post-op becomes; parameters in parentheses follow.
ELTWISE = {
    "relu": ("relu", "leaky_relu"), "tanh": ("tanh",), "logistic": ("sigmoid",), "gelu_erf": ("gelu",),
    "gelu_tanh": ("gelu_approx_tanh",), "abs": ("abs",), "sqrt": ("sqrt",), "exp": ("exp",), "log": ("log",),
}  # fmt: skip
BINARY = {
    ("add", "per_oc"): "bias", ("add", "per_tensor"): "residual", ("mul", "per_oc"): "scale",
    ("mul", "per_tensor"): "mul",
}  # fmt: skip
_KEYS = ("mb", *(f"{kind}{axis}" for kind in "iokspd" for axis in "cdhw" if kind in "io" or axis != "c"), "g")
_FIELD = re.compile(rf"({'|'.join(_KEYS)})(\d+)")
_LARGEST = 2**40
_CONFIGURED = re.compile("|".join(sorted(TYPES, key=len, reverse=True)))


@dataclass(frozen=True, slots=True)
class Settings:
    """The options in force."""

    driver: str = "conv"
    directions: tuple[str, ...] = ("FWD_B",)
    types: tuple[tuple[str, str, str], ...] = (("f32", "f32", "f32"),)
    layouts: tuple[bool | None, bool | None, bool | None] = (None, None, None)  # x, w, y
    minibatch: int = 0
    steps: tuple[str, ...] = ()


def read(text: str, channels_last: bool = False) -> Imported:
    """Every descriptor of every line. ``channels_last``: the layout where a line leaves the choice (tag any)."""
    found: list[Problem] = []
    refused: list[Rejection] = []
    settings = Settings()
    for number, line in enumerate(text.splitlines(), 1):
        words = _words(line, number, refused)
        broken = False  # an option of this line was refused: its descriptors would mean something else
        for word in words:
            try:
                if word.startswith("-"):
                    settings = _option(settings, word)
                elif word.rsplit("/", 1)[-1].removesuffix(".exe") == "benchdnn":
                    settings = Settings()
                elif not broken:
                    found += _descriptor(settings, word, number, channels_last)
            except Refusal as refusal:
                broken = broken or word.startswith("-")
                refused.append(refusal.at(f"line {number}"))
            except BadParam as error:
                refused += error.rejections
    return Imported("benchdnn", tuple(found), tuple(refused))


def _words(line: str, number: int, refused: list[Rejection]) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        wrong = Refusal(VALUE, "line", line, expected="quotes in pairs", detail=str(error), fix="close the quotes")
        refused.append(wrong.at(f"line {number}"))
        return []


def _option(settings: Settings, word: str) -> Settings:
    name, _, value = word.lstrip("-").partition("=")
    name, value = name.lower(), value.strip("'\"")
    if name in IGNORED or re.fullmatch(r"v\d+", name):
        return settings
    if name == "reset":
        return Settings(driver=settings.driver)
    if not value and "=" not in word:
        return replace(settings, driver=name)
    match name:
        case "dir":
            return replace(settings, directions=tuple(_known("--dir", part, DIRECTIONS) for part in value.split(",")))
        case "dt" | "cfg":
            return replace(settings, types=tuple(_types(name, part) for part in value.split(",")))
        case "stag" | "wtag" | "dtag":
            place = ("stag", "wtag", "dtag").index(name)
            found = list(settings.layouts)
            found[place] = LAYOUTS[_known(f"--{name}", value.lower(), LAYOUTS)]
            return replace(settings, layouts=(found[0], found[1], found[2]))
        case "mb":
            return replace(settings, minibatch=_number("--mb", value))
        case "attr-post-ops":
            return replace(settings, steps=tuple(_step(part) for part in re.split(r"[+;]", value) if part))
        case "attr-fpmath" if value == "strict":
            return settings
        case "attr-scales" | "attr-zero-points" | "attr" if not value:
            return settings
        case "match" if value == ".*":
            return settings
    if name == "batch":
        raise Refusal(
            UNKNOWN, "--batch", value, expected="the descriptors themselves", detail="no other file is opened",
            fix="import that file: put the options in front of its lines",
        )  # fmt: skip
    raise Refusal(
        UNKNOWN, f"--{name}", value, expected="options of the convolution driver that a graph can express",
        detail="the problem would be another one without it",
        fix="write the graph with graphdnn.Graph, or leave it out",
    )  # fmt: skip


def _known(option: str, value: str, table: Collection[str]) -> str:
    if value not in table:
        raise Refusal(
            UNKNOWN, option, value, expected=f"one of {', '.join(table)}", detail="the value has no counterpart here",
            fix="use one of them",
        )  # fmt: skip
    return value


def _number(field: str, text: str) -> int:
    if not text.isdecimal() or int(text) > _LARGEST:
        raise Refusal(VALUE, field, text, expected="a whole number", detail="it counts something", fix="correct it")
    return int(text)


def _types(option: str, text: str) -> tuple[str, str, str]:
    if option == "cfg":
        parts = _CONFIGURED.findall(text.removesuffix("_wino"))
        if "".join(parts) != text.removesuffix("_wino"):
            parts = [text]
    else:
        parts = text.split(":")
    parts = parts * 3 if len(parts) == 1 else parts
    if len(parts) != 3:
        raise Refusal(
            VALUE, f"--{option}", text, expected="one type, or those of source, weights and destination",
            detail="a convolution has three tensors", fix="write it like --dt=u8:s8:f32",
        )  # fmt: skip
    x, w, y = (TYPES[_known(f"--{option}", part, TYPES)] for part in parts)
    return x, w, y


def _step(text: str) -> str:
    """A post-op as a step of a problem text."""
    kind, *given = text.lower().split(":")
    kind = kind.removeprefix("eltwise_")
    if kind == "sum" and all(_number_or(part, 1.0) == 1.0 for part in given[:1]) and len(given) < 2:
        return "residual"
    if kind in ELTWISE and not any(_number_or(part, 1.0) for part in given):
        return ELTWISE[kind][0]
    if kind == "relu" and len(given) == 1:
        return f"leaky_relu({given[0]})"
    if kind == "clip" and len(given) == 2:
        return f"clip({given[0]},{given[1]})"
    if kind in ("elu", "swish") and len(given) <= 1:
        return f"{kind}({given[0]})" if given else kind
    if (kind, *given[1:2]) in BINARY and given[:1] == ["f32"]:
        return BINARY[kind, given[1]]
    raise Refusal(
        UNKNOWN, "--attr-post-ops", text,
        expected="sum, relu[:slope], clip:low:high, elu:alpha, swish:beta, tanh, logistic, gelu_erf, gelu_tanh, abs, "
                 "sqrt, exp, log, or add and mul of f32 per_oc or per_tensor",
        detail="no step of a problem text computes it", fix="write the graph with graphdnn.Graph",
    )  # fmt: skip


def _number_or(text: str, otherwise: float) -> float:
    try:
        return float(text)
    except ValueError:
        return otherwise


def _descriptor(settings: Settings, word: str, line: int, channels_last: bool) -> list[Problem]:
    if settings.driver != "conv":
        raise Refusal(
            UNKNOWN, "driver", f"--{settings.driver}", expected="--conv",
            detail="other drivers describe other operations",
            fix="write the operation as a problem text, e.g. matmul a=f16[64,64] b=f16[64,64]",
        )  # fmt: skip
    fields, name = _fields(word)
    found: list[Problem] = []
    for direction, types in product(settings.directions, settings.types):
        steps = ("bias",) * (direction == "FWD_B") + settings.steps
        if settings.steps and not direction.startswith("FWD"):
            raise Refusal(
                UNKNOWN, "--attr-post-ops", "+".join(settings.steps), expected="none with a gradient",
                detail="post-ops follow a forward convolution", fix="leave them out, or use --dir=FWD_B",
            )  # fmt: skip
        x, w, y = settings.layouts
        layouts = tuple(channels_last if given is None else given for given in (x, w))
        convolution = Convolution(
            **_geometry(fields, settings.minibatch), types=types, steps=steps,
            channels_last=(layouts[0], layouts[1], layouts[0] if y is None else y),
        )  # fmt: skip
        found += problems(line, name, convolution, DIRECTIONS[direction])
    return found


def _fields(word: str) -> tuple[dict[str, int], str]:
    """The numbers of a descriptor, and its name."""
    fields: dict[str, int] = {}
    at = 0
    while at < len(word):
        match = _FIELD.match(word, at)
        if match:
            fields[match[1]] = _number(match[1], match[2])
            at = match.end()
        elif word[at] == "_":
            at += 1
        elif word[at] == "n":
            return fields, " ".join(word[at + 1 :].strip("\"'").split())
        else:
            raise Refusal(
                UNKNOWN, "descriptor", word, expected=f"fields among {', '.join(_KEYS)}, and n with a name at the end",
                detail=f"it cannot be read from {word[at : at + 12]!r} on",
                fix="write it like mb64ic64ih56oc64oh56kh3ph1",
            )  # fmt: skip
    return fields, ""


def _geometry(fields: dict[str, int], minibatch: int) -> dict[str, Any]:
    for name in ("ic", "oc"):
        if not fields.get(name):
            raise Refusal(MISSING, name, "nothing", expected=f"{name} with a number")
    axes = _axes(fields)
    if not axes:
        raise Refusal(MISSING, "ih", "nothing", expected="ih, iw or id with a number")
    lacking = [axis for axis in "dhw" if axis not in axes and any(fields.get(f"{kind}{axis}") for kind in "spd")]
    lacking += [axis for axis in "hw" if axis not in axes and len(axes) == 2 and axes[0] == "d"]
    for axis in lacking:
        raise Refusal(MISSING, f"i{axis}", "nothing", expected=f"i{axis} and k{axis} with a number")
    rank = {"d": 3, "h": 2, "w": 1}[axes[0]]
    sizes: dict[str, Extents] = {}
    for kind in "ikospd":
        sizes[kind] = tuple(_along(fields, kind, axis, axes) for axis in "dhw"[3 - rank :])
    for kind in "ik":
        if not all(sizes[kind]):
            raise Refusal(MISSING, f"{kind}{axes[0]}", "nothing", expected=f"{kind}{axes[0]} with a number")
    dilation = tuple(gap + 1 for gap in sizes["d"])
    padding = sizes["p"]
    if any(sizes["o"]):
        padding = tuple(_padding(fields, axis, i, sizes, dilation) for i, axis in enumerate("dhw"[3 - rank :]))
    output, pre, post = symmetric((sizes["i"], sizes["k"], padding, sizes["s"], dilation), sizes["o"])
    return {
        "n": minibatch or fields.get("mb", 2), "groups": fields.get("g", 1), "c": fields["ic"], "k": fields["oc"],
        "input": sizes["i"], "filter": sizes["k"], "output": output, "stride": sizes["s"], "dilation": dilation,
        "pre": pre, "post": post,
    }  # fmt: skip


def _axes(fields: dict[str, int]) -> list[str]:
    """The spatial axes that have an extent of their own."""
    return [axis for axis in "dhw" if any(fields.get(f"{kind}{axis}") for kind in "iko")]


def _along(fields: dict[str, int], kind: str, axis: str, axes: list[str]) -> int:
    """A number of one axis. An axis that is not named is like the first one that is named."""
    own = axis if axis in axes else axes[0]
    unsaid = {"s": 1}.get(kind, 0)
    return fields.get(f"{kind}{own}", unsaid)


def _padding(fields: dict[str, int], axis: str, place: int, sizes: dict[str, Extents], dilation: Extents) -> int:
    """As said, or what the output's extent asks for, the smaller half in front."""
    axes = _axes(fields)
    own = axis if axis in axes else axes[0]
    if f"p{own}" in fields or not sizes["o"][place]:
        return sizes["p"][place]
    reach = (sizes["k"][place] - 1) * dilation[place] + 1
    return max(0, ((sizes["o"][place] - 1) * sizes["s"][place] - sizes["i"][place] + reach) // 2)


def looks_like(text: str) -> bool:
    """Whether a line begins like one of benchdnn's."""
    return (
        re.search(r"(?m)^\s*(\S*benchdnn\b|--conv\b|--(dir|dt|cfg|reset|mb|batch)\b|(g\d+)?(mb\d+)?_?ic\d+)", text)
        is not None
    )
