"""Lines of MIOpenDriver's convolutions: ``MIOpenDriver convfp16 -n 64 -c 64 -H 56 -W 56 -k 64 -p 1 -q 1 -F 1``.

Each line stands alone: a command as it is typed, after assignments of the environment and before redirections, or as
MIOpen logs it (``MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver ...``). A backslash at the end of a line
joins the next one. Lines without the driver's name are counted, for logs and scripts are full of them.

``-F`` is a sum of 1 (forward), 2 (data gradient) and 4 (filter gradient), 0 for all three. A transposed convolution is
the data gradient of the plain one, so its directions change places. Flags that say only how the driver runs are passed
over: ``IGNORED``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

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
from graphdnn.importers.import_result import UNKNOWN, VALUE, Imported, Problem, Refusal

TYPES = {
    "conv": ("f32", "f32", "f32"), "convfp16": ("f16", "f16", "f16"), "convbfp16": ("bf16", "bf16", "bf16"),
    "convint8": ("i8", "i8", "i32"),
}  # fmt: skip
# Long name -> (short name, default).
FLAGS: Mapping[str, tuple[str, str]] = {
    "in_layout": ("I", ""), "out_layout": ("O", ""), "fil_layout": ("f", ""), "spatial_dim": ("_", "2"),
    "forw": ("F", "0"), "batchsize": ("n", "100"), "in_channels": ("c", "3"), "in_d": ("!", "32"), "in_h": ("H", "32"),
    "in_w": ("W", "32"), "out_channels": ("k", "32"), "fil_d": ("@", "3"), "fil_h": ("y", "3"), "fil_w": ("x", "3"),
    "conv_stride_d": ("#", "1"), "conv_stride_h": ("u", "1"), "conv_stride_w": ("v", "1"), "pad_d": ("$", "0"),
    "pad_h": ("p", "0"), "pad_w": ("q", "0"), "pad_val": ("r", "0"), "trans_output_pad_d": ("%", "0"),
    "trans_output_pad_h": ("Y", "0"), "trans_output_pad_w": ("X", "0"), "bias": ("b", "0"), "mode": ("m", "conv"),
    "pad_mode": ("z", "default"), "tensor_vect": ("Z", "0"), "vector_length": ("L", "1"), "dilation_d": ("^", "1"),
    "dilation_h": ("l", "1"), "dilation_w": ("j", "1"), "group_count": ("g", "1"), "in_cast_type": ("U", "-1"),
    "out_cast_type": ("T", "-1"), "wei_cast_type": ("R", "-1"),
}  # fmt: skip
IGNORED: Mapping[str, str] = {
    "iter": "i", "verify": "V", "verification_cache": "C", "time": "t", "wall": "w", "search": "s", "printconv": "P",
    "dump_output": "o", "in_data": "d", "weights": "e", "in_bias": "a", "dout_data": "D", "solution": "S",
    "gpualloc": "G", "gpubuffer_check": "~",
}  # fmt: skip
_LONG = {short: name for name, (short, _) in FLAGS.items()} | {short: name for name, short in IGNORED.items()}
# Flags that have to stay as they are, because no graph here means the same.
_FIXED = {
    "pad_val": "padding is zeros", "tensor_vect": "vectors of channels are another layout",
    "vector_length": "vectors of channels are another layout", "in_cast_type": "operands are not cast on their way",
    "out_cast_type": "results are not cast on their way", "wei_cast_type": "operands are not cast on their way",
}  # fmt: skip
_LAYOUTS = {"": False, "NCHW": False, "NCDHW": False, "NHWC": True, "NDHWC": True}
_SWAPPED = {FORWARD: DATA, DATA: FORWARD, FILTER: FILTER, BIAS: BIAS}
_LARGEST = 2**40
DRIVER = "MIOpenDriver"
_ENDS = re.compile(r"\d?>|[|;&]")  # what the shell reads itself


def read(text: str, channels_last: bool = False) -> Imported:
    """Every line with a driver's name. ``channels_last`` is not asked: these lines always say a layout."""
    found: list[Problem] = []
    refused: list[Rejection] = []
    others = 0
    for number, line in _joined(text):
        if DRIVER not in line:
            others += bool(line.strip()) and not line.lstrip().startswith("#")
            continue
        try:
            words = shlex.split(line)
            if not line.lstrip().startswith("#"):
                found += _line(words, number)
        except Refusal as refusal:
            refused.append(refusal.at(f"line {number}"))
        except BadParam as error:
            refused += error.rejections
        except ValueError as error:
            wrong = Refusal(VALUE, "line", line, expected="quotes in pairs", detail=str(error), fix="close the quotes")
            refused.append(wrong.at(f"line {number}"))
    notes = (f"lines that do not name {DRIVER}: {others}",) if others else ()
    return Imported("miopen", tuple(found), tuple(refused), notes)


def looks_like(text: str) -> bool:
    return DRIVER in text


def _joined(text: str) -> Iterator[tuple[int, str]]:
    """Lines with the number of their first part."""
    first, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        first = number if not parts else first
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield first, " ".join(parts)
            parts.clear()
    if parts:
        yield first, " ".join(parts)


def _line(words: list[str], line: int) -> list[Problem]:
    start = next((i for i, word in enumerate(words) if word.rsplit("/", 1)[-1] == DRIVER), None)
    is_logged = bool(words) and words[0].startswith("MIOpen(")
    if start is None or not (is_logged or all("=" in word for word in words[:start])):
        raise Refusal(
            UNKNOWN, "command", words[0], expected=f"{DRIVER}, after assignments of the environment or as it is logged",
            detail="the line begins otherwise", fix="give the command line as it is typed",
        )  # fmt: skip
    end = next((i for i, word in enumerate(words) if i > start and _ENDS.match(word)), len(words))
    operation, *rest = words[start + 1 : end] or [""]
    if operation not in TYPES:
        raise Refusal(
            UNKNOWN, "operation", operation or "nothing", expected=f"one of {', '.join(TYPES)}",
            detail="other operations and types of the driver have no counterpart among convolutions",
            fix="write it as a problem text, e.g. pool max x=f16[2,8,32,32] window=2",
        )  # fmt: skip
    flags = _flags(rest)
    for name, reason in _FIXED.items():
        if flags[name] != FLAGS[name][1]:
            raise Refusal(
                VALUE, f"--{name}", flags[name], expected=FLAGS[name][1], detail=reason,
                fix="leave the flag out, where the plain problem is meant",
            )  # fmt: skip
    return problems(line, "", _convolution(flags, TYPES[operation]), _directions(flags))


def _flags(words: list[str]) -> dict[str, str]:
    found = {name: default for name, (_, default) in FLAGS.items()}
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    at = 0
    while at < len(words):
        word = words[at]
        name = word[2:] if word.startswith("--") else _LONG.get(word[1:], "") if word.startswith("-") else ""
        if name not in FLAGS and name not in IGNORED:
            raise Refusal(
                UNKNOWN, "flag", word, expected="a flag of the convolution driver",
                detail="the driver has no such flag",
                fix="correct the flag",
            )  # fmt: skip
        if at + 1 == len(words):
            raise Refusal(VALUE, word, "nothing", expected="a value", detail="every flag has one", fix="add the value")
        if name in FLAGS:
            found[name] = words[at + 1]
        at += 2
    return found


def _number(flags: Mapping[str, str], name: str, least: int = 0) -> int:
    text = flags[name]
    if not re.fullmatch(r"\d{1,12}", text) or not least <= int(text) <= _LARGEST:
        raise Refusal(
            VALUE, f"--{name}", text, expected=f"a whole number of at least {least}", detail="it counts something",
            fix="correct it",
        )  # fmt: skip
    return int(text)


def _directions(flags: Mapping[str, str]) -> tuple[str, ...]:
    asked = _number(flags, "forw")
    if asked > 7:
        raise Refusal(
            VALUE, "--forw", asked, expected="0 to 7", detail="it is a sum of 1, 2 and 4", fix="choose the directions"
        )
    asked = asked or 7
    found = [name for bit, name in ((1, FORWARD), (2, DATA), (4, FILTER)) if asked & bit]
    if _has_bias(flags) and asked & 6:
        found.append(BIAS)
    return tuple(_SWAPPED[name] for name in found) if flags["mode"] == "trans" else tuple(found)


def _has_bias(flags: Mapping[str, str]) -> bool:
    return flags["bias"] not in ("", "0")


def _convolution(flags: Mapping[str, str], types: tuple[str, str, str]) -> Convolution:
    if flags["mode"] not in ("conv", "trans"):
        raise Refusal(
            VALUE,
            "--mode",
            flags["mode"],
            expected="conv or trans",
            detail="the driver has two modes",
            fix="choose one",
        )
    rank = _number(flags, "spatial_dim")
    if rank not in (2, 3):
        raise Refusal(
            VALUE, "--spatial_dim", rank, expected="2 or 3", detail="the driver has no other convolutions", fix="use 2"
        )
    axes = "dhw"[3 - rank :]

    def along(name: str, least: int = 0) -> Extents:
        return tuple(_number(flags, f"{name}_{axis}", least) for axis in axes)

    size, taps, stride, dilation = (along(name, 1) for name in ("in", "fil", "conv_stride", "dilation"))
    padding = _padding(flags, along("pad"), size, taps, stride, dilation)
    layouts = [_layout(flags, name, rank) for name in ("in_layout", "fil_layout", "out_layout")]
    n, c, k, groups = (_number(flags, name, 1) for name in ("batchsize", "in_channels", "out_channels", "group_count"))
    steps = ("bias",) if _has_bias(flags) else ()
    if flags["mode"] == "conv":
        if any(along("trans_output_pad")):
            raise Refusal(
                VALUE, "--trans_output_pad_h", along("trans_output_pad"), expected="0 with --mode conv",
                detail="it belongs to transposed convolutions", fix="leave it out",
            )  # fmt: skip
        output, pre, post = symmetric((size, taps, padding, stride, dilation), None)
        return Convolution(
            n=n, groups=groups, c=c, k=k, input=size, filter=taps, output=output, stride=stride, dilation=dilation,
            pre=pre, post=post, types=types, channels_last=(layouts[0], layouts[1], layouts[2]),
            steps=steps,
        )  # fmt: skip
    # What the plain convolution reads is what the transposed one writes.
    sizes = zip(size, taps, stride, dilation, padding, along("trans_output_pad"), strict=True)
    written = tuple((i - 1) * s + d * (t - 1) + 1 - 2 * p + more for i, t, s, d, p, more in sizes)
    if min(written) < 1:
        raise Refusal(
            VALUE, "--pad_h", padding, expected="padding that leaves an output", detail=f"its extents are {written}",
            fix="pad less",
        )  # fmt: skip
    return Convolution(
        n=n, groups=groups, c=k, k=c, input=written, filter=taps, output=size, stride=stride, dilation=dilation,
        pre=padding, post=padding, types=(types[2], types[1], types[0]),
        channels_last=(layouts[2], layouts[1], layouts[0]), steps=steps, is_transposed=True,
    )  # fmt: skip


def _padding(
    flags: Mapping[str, str], given: Extents, size: Extents, taps: Extents, stride: Extents, dilation: Extents
) -> Extents:
    """``-z same`` and ``-z valid`` set the padding of plain convolutions without dilation, as the driver does."""
    mode = flags["pad_mode"]
    if mode not in ("default", "same", "valid"):
        raise Refusal(
            VALUE,
            "--pad_mode",
            mode,
            expected="default, same or valid",
            detail="the driver has three",
            fix="choose one",
        )
    if mode == "default" or flags["mode"] == "trans" or (set(dilation) != {1} and set(taps) != {1}):
        return given
    if mode == "valid":
        return (0,) * len(size)
    sizes = zip(size, taps, stride, strict=True)
    return tuple(max(t - (s if i % s == 0 else i % s), 0) // 2 for i, t, s in sizes)


def _layout(flags: Mapping[str, str], name: str, rank: int) -> bool:
    text = flags[name].upper()
    if text not in _LAYOUTS or (text and len(text) != rank + 2):
        raise Refusal(
            VALUE, f"--{name}", flags[name], expected="NCHW or NHWC, NCDHW or NDHWC with three axes",
            detail="blocked layouts have no strides", fix="use one of them",
        )  # fmt: skip
    return _LAYOUTS[text]
