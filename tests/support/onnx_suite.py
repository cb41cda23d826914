"""ONNX's own backend tests on graphdnn: what each case came to, and whether an engine computed it."""

from __future__ import annotations

import collections
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "real")
PASS_LIST = Path(__file__).resolve().parents[1] / "data" / "onnx_suite_passed.txt"
# The suite allows BFLOAT16 two units in the last place. FLOAT16 gets as many here: one is 2^-10, above the suite's 1e-3.
TWO_HALF_UNITS = 2**-9
# Expected values that are rounding errors of NumPy's transform of complex64, where zeros are right.
ROUNDED_ZEROS = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}
# Cases without a right answer in their arithmetic, each with the reason.
WITHOUT_ANSWER = {
    "test_squeezenet": "softmax of equal logits of 9.5e9, whose last place is 1024: each rounding decides the result",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one case came to."""

    kind: str
    name: str
    verdict: str  # passed, skipped or failed
    reason: str  # group of a skipped case, or what failed
    plans: int  # graphs that an engine computed; 0 if the case was folded into constants


def cases(kind: str) -> list[Any]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(load_model_tests(kind=kind))


def run_case(case: Any, device: str = "CPU") -> Outcome:
    """Run one case with its data."""
    from onnx.backend.test.runner import Runner

    from graphdnn.errors import GraphdnnError
    from graphdnn.onnx.backend import GraphdnnBackend

    plans = 0
    if case.name in WITHOUT_ANSWER:
        return Outcome(case.kind, case.name, "skipped", WITHOUT_ANSWER[case.name], plans)
    try:
        model, data = loaded(case)
        prepared = GraphdnnBackend.prepare(model, device)
        for inputs, expected in data:
            got = prepared.run(inputs)
            halves = any(getattr(array, "dtype", None) == np.float16 for array in expected)
            rtol = max(case.rtol, TWO_HALF_UNITS) if halves else case.rtol
            Runner.assert_similar_outputs(expected, got, rtol=rtol, atol=ROUNDED_ZEROS.get(case.name, case.atol))
        plans = sum(len(p.plans) for p in prepared.model._programs.values())
    except GraphdnnError as error:
        return Outcome(case.kind, case.name, *_skipped(error), 0)
    except Exception as error:  # whatever it is, the case failed
        return Outcome(case.kind, case.name, "failed", f"{type(error).__name__}: {str(error).strip()[:300]}", plans)
    return Outcome(case.kind, case.name, "passed", "", plans)


_REFUSALS = (
    "onnx.operator",
    "onnx.element_type",
    "onnx.shape.unknown",
    "onnx.value.unknown",
    "onnx.rank",
    "onnx.input.kind",
)


def _skipped(error: Any) -> tuple[str, str]:
    """A refusal is a skipped case, unless it says that something went wrong."""
    first = error.rejections[0]
    if not first.rule.startswith(_REFUSALS):
        return "failed", str(error)[:500]
    words = {
        "onnx.operator": f"operator {str(first.value).split(',')[0]}",
        "onnx.operator.need": f"need of {first.where.split('(')[-1].rstrip(')')}: {first.attribute} = {first.shown_value}",
        "onnx.element_type": f"element type {first.value}",
    }
    return "skipped", words.get(first.rule, first.rule.removeprefix("onnx."))


def loaded(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    import onnx

    if case.model is not None:
        data = [([_array(i) for i in a], [_array(o) for o in b]) for a, b in case.data_sets]
        return case.model, data
    if case.model_dir is None:
        return _light(case)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    found = []
    for place in sorted(folder.glob("test_data_set*")):
        found.append(
            tuple(
                [
                    _read(place / f"{role}_{i}.pb", declared)
                    for i, declared in enumerate(infos)
                    if (place / f"{role}_{i}.pb").exists()
                ]
                for role, infos in (("input", model.graph.input), ("output", model.graph.output))
            )
        )
    return model, found  # type: ignore[return-value]


def _array(value: Any) -> Any:
    """Data of a case; some cases have protos."""
    import onnx

    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _light(case: Any) -> tuple[Any, list[tuple[list[Any], list[Any]]]]:
    """A "real" network without its weights: constants stand in, and the package has the outputs."""
    import onnx
    from onnx.backend.test.runner import Runner

    path = Path(onnx.__file__).parent.parent / case.url
    model = onnx.load(path)
    known = {t.name for t in model.graph.initializer}
    inputs = [Runner.generate_dummy_data(i, seed=0, name=case.name) for i in model.graph.input if i.name not in known]
    outputs = [_read(path.with_name(f"{path.stem}_output_{i}.pb"), o) for i, o in enumerate(model.graph.output)]
    return model, [(inputs, outputs)]


def _read(path: Path, declared: Any) -> Any:
    import onnx

    content = path.read_bytes()
    if declared.type.HasField("sequence_type"):
        sequence = onnx.SequenceProto()
        sequence.ParseFromString(content)
        return onnx.numpy_helper.to_list(sequence)
    if declared.type.HasField("optional_type"):
        optional = onnx.OptionalProto()
        optional.ParseFromString(content)
        return onnx.numpy_helper.to_optional(optional)
    tensor = onnx.TensorProto()
    tensor.ParseFromString(content)
    return onnx.numpy_helper.to_array(tensor)


def run_all(
    kinds: tuple[str, ...] = KINDS, words: str = "", device: str = "CPU", share: tuple[int, int] = (0, 1)
) -> Iterator[Outcome]:
    """``share``: (i, n) runs every n-th case from the i-th one on."""
    for kind in kinds:
        for place, case in enumerate(cases(kind)):
            if words in case.name and place % share[1] == share[0]:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    yield run_case(case, device)


def recorded(outcomes: list[Outcome]) -> list[tuple[Any, ...]]:
    """The outcomes as plain data, for ``record_property(PROPERTY, ...)``."""
    return [astuple(o) for o in outcomes]


def summary(outcomes: list[Outcome]) -> str:
    """Counts: run, passed by plans and by folding, skipped by reason, failed."""
    verdicts = collections.Counter(o.verdict for o in outcomes)
    by_plan = sum(o.verdict == "passed" and o.plans > 0 for o in outcomes)
    lines = [
        f"ONNX backend tests: {len(outcomes)} run, {verdicts['passed']} passed "
        f"({by_plan} by plans, {verdicts['passed'] - by_plan} by constant folding alone), "
        f"{verdicts['skipped']} skipped, {verdicts['failed']} failed"
    ]
    groups = collections.Counter(o.reason for o in outcomes if o.verdict == "skipped")
    lines += [f"  skipped {count}: {reason}" for reason, count in groups.most_common()]
    lines += [f"  failed {o.kind} {o.name}: {o.reason}" for o in outcomes if o.verdict == "failed"]
    return "\n".join(lines)


PROPERTY = "onnx backend tests"  # of a test's report, which crosses processes


def lines(reports: list[Any]) -> list[str]:
    """The summary of all backend tests of a run; nothing where none was run."""
    given = [value for r in reports for name, value in getattr(r, "user_properties", ()) if name == PROPERTY]
    found = {tuple(row): Outcome(*row) for rows in given for row in rows}
    return summary(list(found.values())).splitlines() if found else []


def passed_before() -> set[str]:
    return set(PASS_LIST.read_text(encoding="utf-8").split()) if PASS_LIST.exists() else set()


if __name__ == "__main__":  # python tests/support/onnx_suite.py [--update] [kind] [word]
    update = "--update" in sys.argv
    given = [a for a in sys.argv[1:] if a != "--update"]
    start = time.time()
    found = list(run_all(tuple(given[:1]) or KINDS, given[1] if len(given) > 1 else ""))
    print(summary(found))
    print(f"{time.time() - start:.1f} s", json.dumps(dict(collections.Counter(o.verdict for o in found))))
    passed = {f"{o.kind}/{o.name}" for o in found if o.verdict == "passed"}
    if update:
        PASS_LIST.write_text("\n".join(sorted(passed_before() | passed)) + "\n", encoding="utf-8")
    print(*sorted(name for name in passed_before() - passed if not given), sep="\n")
