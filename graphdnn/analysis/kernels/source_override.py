"""A plan with another text in place of a kernel's own: for those who try out a change before they make it.

The launch stays: grid, block, shared memory, and the struct of parameters. The text keeps its options and gets a name
of its own, so that the kernel cache never mistakes one for the other.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

from graphdnn.analysis.kernels.kernel_view import KernelView, of_plan
from graphdnn.cuda.nvrtc import KernelText
from graphdnn.errors import BadParam, InternalError
from graphdnn.plan import ExecutionPlan
from graphdnn.rules import Rule

INDEX = Rule(
    id="kernels.index",
    expected="{expected}",
    reason="{reason}",
    fix="plan.kernels lists the kernels",
)
TEXT = Rule(
    id="kernels.text",
    expected="{expected}",
    reason="{reason}",
    fix="start from the kernel's own text, and keep its entry points and struct Params",
)
COMPILATION = Rule(
    id="kernels.compilation",
    expected="text that compiles",
    reason="{reason}",
    fix="correct the text at the lines that the compiler names",
)
_EDITED = re.compile(r"__edited_[0-9a-f]{8}$")


def kernel_at(plan: ExecutionPlan, index: int) -> KernelView:
    """Raises ``BadParam`` when the plan has no such kernel."""
    kernels = of_plan(plan)
    if not 0 <= index < len(kernels):
        raise BadParam(
            INDEX.reject(
                "PLAN", "index", index, expected=f"0 to {len(kernels) - 1}", reason="kernels are counted from 0"
            )
        )
    return kernels[index]


def text_of(kernel: KernelView, name: str | None = None) -> KernelText:
    """The text with this name, or the one of the main launch. Raises ``BadParam`` when there is none."""
    texts = {text.name: text for text in kernel.texts}
    if not texts:
        why = "NumPy computes this kernel" if kernel.is_on_host else "a library computes this kernel"
        raise BadParam(INDEX.reject(f"kernel {kernel.name}", "text", "none", expected="a kernel with text", reason=why))
    if name is None:
        main = kernel.main
        assert main is not None
        return texts[main.name]
    if name not in texts:
        known = f"one of {', '.join(texts)}"
        raise BadParam(
            INDEX.reject(f"kernel {kernel.name}", "text", name, expected=known, reason="no launch has such a text")
        )
    return texts[name]


def with_source(plan: ExecutionPlan, index: int, source: str, name: str | None = None) -> ExecutionPlan:
    """A plan that differs in one text only; ``name`` says which, where a kernel launches several.

    Raises ``BadParam`` for what is no text of this kernel, and for what does not compile.
    """
    from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
    from graphdnn.plan.device_plan import DevicePlan

    kernel = kernel_at(plan, index)
    old = text_of(kernel, name)
    _check(kernel, old, source)
    assert isinstance(plan, DevicePlan)
    assert isinstance(kernel.compiled, DeviceKernel)
    digest = hashlib.sha256(source.encode()).hexdigest()[:8]
    new = KernelText(f"{_EDITED.sub('', old.name)}__edited_{digest}", source, old.options)
    steps = tuple(
        replace(step, text=new) if isinstance(step, Launch) and step.text == old else step
        for step in kernel.compiled.steps
    )
    compiled: list[Any] = list(plan.compiled)
    compiled[index] = replace(kernel.compiled, steps=steps)
    try:
        return plan.with_compiled(compiled)
    except InternalError as error:  # which asks to report the library's own text
        reason = error.rejections[0].reason
        raise BadParam(COMPILATION.reject(f"kernel {kernel.name}", "source", new.name, reason=reason)) from error


def _check(kernel: KernelView, old: KernelText, source: str) -> None:
    entries = dict.fromkeys(launch.entry for launch in kernel.launches if launch.text == old)
    missing = [entry for entry in entries if not re.search(rf"\b{re.escape(entry)}\s*\(", source)]
    where, what = f"kernel {kernel.name}", f"{len(source)} characters"
    if missing:
        expected = f"a text with {', '.join(entries)}"
        reason = f"the launch starts {', '.join(missing)}, which the text does not have"
        raise BadParam(TEXT.reject(where, "source", what, expected=expected, reason=reason))
    if _struct(old.text) != _struct(source):
        reason = "the plan fills the struct word by word, and this one has other fields"
        raise BadParam(TEXT.reject(where, "source", what, expected="struct Params as it was", reason=reason))


def _struct(text: str) -> list[str]:
    """The fields of ``struct Params``, space and comments aside."""
    found = re.search(r"\bstruct\s+(?:\w+\([^)]*\)\s+)?Params\s*\{(.*?)\}\s*;", text, re.S)
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", found[1], flags=re.S) if found else ""
    return plain.split()
