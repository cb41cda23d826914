"""Docstrings of what the API reference describes name every parameter, and say what is raised and returned."""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from repository import ROOT

import graphdnn
from graphdnn.enums import PointwiseMode
from graphdnn.errors import BadParam
from graphdnn.operations.pointwise_modes import POINTWISE

sys.path.append(str(ROOT / "docs" / "reference"))
import build_reference
from reference_pages import LEFT_OUT, PAGES, callables, data_fields, described, members

# Their users construct them, so the docstring of the class names every field.
CONSTRUCTED = ("Graph", "RnnSpec", "TensorSpec", "DeviceSpec", "Filters", "Limits")
RAISES = re.compile(r"\braise\b(?! NotImplementedError)|\braise_if\(|\brefuse_if\(")


def problems(function: Callable[..., Any]) -> list[str]:
    """What the docstring of a function lacks."""
    text = inspect.getdoc(function)
    if not text:
        return ["no docstring"]
    found = [f"no word on {name}" for name in parameters(function) if name not in documented(text)]
    found += [f"a word on {name}, which is no parameter" for name in documented(text) - set(parameters(function))]
    if RAISES.search(source(function)) and "Raises:" not in text:
        found.append("it raises, and does not say so")
    returned = re.search(r"^Returns:\n    (.*)", text, re.M)
    if returned and ": " in re.sub(r"``.*?``", "", returned[1]):
        found.append("the reference takes the words before a colon for the type of the result")
    if not text.split("\n\n")[0].rstrip().endswith((".", ")", "]")) and "->" not in text.split("\n\n")[0]:
        found.append("the first paragraph is no sentence")
    return found


def parameters(function: Callable[..., Any]) -> list[str]:
    kept = [p.name for p in inspect.signature(function).parameters.values()]
    return [name for name in kept if name not in ("self", "cls")]


def documented(text: str) -> set[str]:
    """The names in the section of parameters."""
    section = re.search(r"^Args:\n((?:    .*\n?|\n(?=    ))*)", text + "\n", re.M)
    return set(re.findall(r"^    (\w+): \S", section[1], re.M)) if section else set()


def source(function: Callable[..., Any]) -> str:
    """The text of a function, without its docstring."""
    text = inspect.getsource(inspect.unwrap(function))
    return text.replace(inspect.unwrap(function).__doc__ or " ", "")


DESCRIBED = dict(callables())
WRITTEN = {name: function for name, function in DESCRIBED.items() if not name.startswith("graphdnn.v6.cudnn")}


@pytest.mark.parametrize("name", sorted(DESCRIBED))
def test_docstring(name: str) -> None:
    assert not problems(DESCRIBED[name])


def test_legacy_calls() -> None:
    """Their docstrings are generated, and all have the same form."""
    from graphdnn.v6.functions import functions

    assert len(functions()) == 171
    for name, row in functions().items():
        text = getattr(graphdnn.v6, name).__doc__
        assert documented(text) == {p.name for p in row.inputs}, name
        assert ("Raises:" in text) == (name not in ("cudnnGetVersion", "cudnnGetErrorString", "cudnnGetCudartVersion"))
        assert "Source: " in text
        assert ": " not in text.partition("Returns:\n")[2].split("\n")[0], name


def test_incomplete_docstrings_are_rejected() -> None:
    def scaled(x: float, factor: float) -> float:  # noqa: D417
        """Scale a number.

        Args:
            x: The number.
            times: The factor.
        """
        if factor == 0:
            raise ValueError(factor)
        return x * factor

    assert problems(scaled) == [
        "no word on factor", "a word on times, which is no parameter", "it raises, and does not say so",
    ]  # fmt: skip
    scaled.__doc__ = (
        "Scale a number.\n\nArgs:\n    x: A.\n    factor: B.\n\nReturns:\n    One number: x.\n\nRaises:\n    C: D."
    )
    assert problems(scaled) == ["the reference takes the words before a colon for the type of the result"]
    scaled.__doc__ = "what x is multiplied by"
    assert "the first paragraph is no sentence" in problems(scaled)
    scaled.__doc__ = None
    assert problems(scaled) == ["no docstring"]


def test_builder_methods_that_take_something_say_what_they_refuse() -> None:
    """``guard`` checks the arguments of each of them, which their own text does not show."""
    for name, function in DESCRIBED.items():
        refuses = name.startswith(("graphdnn.Graph.", "graphdnn.builder.Tensor.set_", "graphdnn.backend.cudnnBackend"))
        if refuses and parameters(function) and name != "graphdnn.Graph.natural_type":
            assert "Raises:" in (function.__doc__ or ""), name


@pytest.mark.parametrize("name", CONSTRUCTED)
def test_classes_that_users_construct_name_their_fields(name: str) -> None:
    cls = getattr(graphdnn, name)
    wanted = data_fields(cls) or parameters(cls.__init__)
    assert documented(inspect.getdoc(cls) or "") == set(wanted)


def test_every_public_name_is_described() -> None:
    listed = {name for page in PAGES for name in page.names}
    modules = ("", ".certificate", ".report", ".repairs", ".reducing", ".tuning", ".locks", ".bundles", ".builder")
    public = {
        f"graphdnn{module}.{name}" for module in modules for name in import_module(f"graphdnn{module}").__all__
    } - {"graphdnn.builder.Graph"}  # fmt: skip
    assert not public - listed - set(LEFT_OUT)
    assert not set(LEFT_OUT) & listed
    assert set(LEFT_OUT) <= public
    functions = {n for n in import_module("graphdnn.backend").__all__ if n[0].islower()}
    assert {f"graphdnn.backend.{name}" for name in functions} <= listed
    assert all(described(name) is not None for name in listed)
    assert {"conv_fprop", "relu", "execute", "plan"} <= set(members(graphdnn.Graph))


def test_the_reference_has_pages_for_all_of_it() -> None:
    texts = build_reference.texts()
    assert {"index.rst", "graph.rst", "v6.rst", "command_line.rst"} <= set(texts)
    assert texts["v6.rst"].count("autofunction:: graphdnn.v6.cudnn") == 171
    for command in ("explain", "run", "tune", "lock", "import"):
        assert f"usage: graphdnn {command}" in texts["command_line.rst"]
    assert len(PAGES) + 2 == len(texts)


# The formula of a pointwise mode is text, and the NumPy function is what is computed.

_WORDS = {
    "trunc": np.trunc, "floor": np.floor, "sqrt": np.sqrt, "exp": np.exp, "ln": np.log, "cos": np.cos, "sin": np.sin,
    "tan": np.tan, "tanh": np.tanh, "cosh": np.cosh, "erf": np.vectorize(math.erf), "min": np.minimum,
    "max": np.maximum, "pi": np.pi,
    "upper": 0.75, "lower": -0.25, "slope": 0.5, "alpha": 1.5, "beta": 1.25,
}  # fmt: skip
_VALUES = {
    "relu_upper_clip": 0.75, "relu_lower_clip": -0.25, "relu_lower_clip_slope": 0.5, "elu_alpha": 1.5,
    "softplus_beta": 1.25, "swish_beta": 1.25,
}  # fmt: skip
# Formulas in words, which name a function that has no other form here.
IN_WORDS = {"CEIL", "FLOOR", "ATAN2", "GELU_BWD", "GELU_APPROX_TANH_BWD", "GEN_INDEX", "BINARY_SELECT"}
IN_WORDS |= {"LOGICAL_AND", "LOGICAL_OR", "LOGICAL_NOT"}


def value_of(formula: str, operands: dict[str, np.ndarray]) -> np.ndarray:
    """A formula evaluated: cases with ``for`` and ``else``, definitions behind ``with``."""
    formula, _, definitions = formula.partition(" with ")
    names: dict[str, Any] = {**_WORDS, **operands}
    for definition in definitions.split(" and ") if definitions else ():
        left, right = (_python(side) for side in definition.split(" = "))
        called = re.fullmatch(r"(\w+)\((\w+)\)", left)
        if called:
            names[called[1]] = lambda v, right=right, of=called[2]: eval(right, {**_WORDS, **operands, of: v})
        else:
            names[left] = eval(right, names)
    *cases, last = re.split(r", (?=[^,]* for |else )", formula)
    if not cases:
        return np.asarray(eval(_python(last), names))
    result = eval(_python(last.removeprefix("else ")), names) + 0 * operands["x"]
    for case in reversed(cases):
        value, condition = case.split(" for ")
        result = np.where(eval(_python(condition), names), eval(_python(value), names), result)
    return result


def _python(text: str) -> str:
    return re.sub(r"\|(\w+)\|", r"abs(\1)", text).replace("^", "**")


@pytest.mark.parametrize("mode", [mode for mode in POINTWISE if mode.name not in IN_WORDS], ids=lambda m: m.name)
def test_formula_is_what_is_computed(mode: PointwiseMode) -> None:
    row, rng = POINTWISE[mode], np.random.default_rng(7)
    operands = {port: rng.uniform(-2.0, 2.0, 64) for port in row.operands}
    if mode.name in ("SQRT", "RSQRT", "LOG", "POW"):
        operands["x"] = np.abs(operands["x"]) + 0.1
    parameters = {name: _VALUES[name] for name in row.parameters}
    wanted = row.numpy(*operands.values(), **parameters)
    np.testing.assert_allclose(value_of(row.formula, operands), wanted, rtol=1e-9, atol=1e-12)


def test_a_wrong_formula_is_rejected() -> None:
    x = {"x": np.array([-1.0, 0.5, 2.0])}
    row = POINTWISE[PointwiseMode.ELU_FWD]
    wanted = row.numpy(x["x"], elu_alpha=1.5)
    assert np.allclose(value_of(row.formula, x), wanted)
    assert not np.allclose(value_of("x for x >= 0, else alpha * exp(x)", x), wanted)


def test_a_wrong_argument_is_refused_as_the_docstring_says() -> None:
    graph = graphdnn.Graph("layer", io_data_type="float32")
    with pytest.raises(BadParam):
        graph.tensor([2, 3]).set_dim("extents")  # type: ignore[arg-type]
