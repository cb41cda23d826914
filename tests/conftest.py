"""Of every run: the tests' modules are importable, and it says what took part and what it covered. Fixtures: shared_fixtures.py."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import absent_tools
import legacy_results
import onnx_suite
import pytest

from graphdnn.backend.descriptor import Descriptor
from graphdnn.backend.descriptor_types import KINDS
from graphdnn.cuda import nvrtc
from graphdnn.cuda.driver_api import available
from graphdnn.errors import NotSupported, Rejection
from graphdnn.fusion import UnfusedEdge
from graphdnn.rules import RULES

pytest_plugins = ["shared_fixtures"]

RAISED: set[str] = set()  # rule ids
RAISED_NOW: set[str] = set()  # rule ids, of the test that runs
TOUCHED: set[str] = set()  # "descriptor attribute", set or read
PROBLEMS: Counter[str] = Counter()  # problems executed end to end, by kind
LEGACY: dict[str, set[str]] = {}  # legacy function -> tests that called it
KNOWN: set[str] = set()  # rules are known once their module is imported
ATTRIBUTES = {
    f"{kind.name} {name.name}" for kind in KINDS for name in (*KINDS[kind].rows, *KINDS[kind].refused)
}  # fmt: skip


def _record_rules(cls: type[Any]) -> None:
    """Note the rule of every rejection or stop that is made."""
    made = cls.__init__

    def init(self: Any, *args: Any, **fields: Any) -> None:
        made(self, *args, **fields)
        RAISED.add(self.rule)
        RAISED_NOW.add(self.rule)

    cls.__init__ = init


def _record_attributes(method: str) -> None:
    """Note every attribute that is set or read."""
    done = getattr(Descriptor, method)

    def call(self: Descriptor, name: Any, *args: Any) -> Any:
        is_number = isinstance(name, int) and abs(name) < 2**63  # Python does not print numbers of any length
        if is_number or isinstance(name, str):  # other objects bring code of their own
            TOUCHED.add(f"{self.type.name} {getattr(name, 'name', name)}")
        return done(self, name, *args)

    setattr(Descriptor, method, call)


_record_rules(Rejection)
_record_rules(UnfusedEdge)
_record_attributes("set")
_record_attributes("get")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--legacy-table", action="store_true", help="list every legacy function with its number of cases")
    parser.addoption(
        "--legacy-results", type=Path, help="write a file: passed and failed cases of each legacy function"
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note which test calls which legacy function, where a test imports them."""
    v6 = sys.modules.get("graphdnn.v6")
    for line in v6.coverage() if v6 is not None else ():
        if line.function not in LEGACY:
            setattr(v6, line.function, _noted(line.function, getattr(v6, line.function)))


def _noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    tests = LEGACY.setdefault(name, set())

    @wraps(call)
    def noted(*args: Any, **named: Any) -> Any:
        tests.add(_running[0])
        return call(*args, **named)

    return noted


_running = [""]  # the id of the test


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    legacy_results.note(report)


def _print_legacy(reporter: Any, every: bool) -> None:
    """The legacy functions: how many were called, and in how many cases each."""
    v6 = sys.modules.get("graphdnn.v6")
    cases = {name: len(tests - {""}) for name, tests in LEGACY.items()}
    if v6 is None or not any(cases.values()):
        return
    called = sum(count > 0 for count in cases.values())
    reporter.write_line(
        f"legacy functions called in this run: {called} of {len(cases)}, in {sum(cases.values())} cases"
    )
    rows = [
        (line.function, line.section, line.becomes, line.verified or "-", cases.get(line.function, 0), line.family)
        for line in v6.coverage()
    ]
    if every:
        for name, section, becomes, verified, count, _ in rows:
            reporter.write_line(f"  {name:55} {section:6} {becomes:34} {verified:22} {count}")
        return
    for family in dict.fromkeys(row[-1] for row in rows):
        counts = [row[4] for row in rows if row[-1] == family]
        reporter.write_line(f"  {family:12} {len(counts):3} functions, {min(counts)} to {max(counts)} cases")


def pytest_report_header() -> str:
    torch = "with" if importlib.util.find_spec("torch") else "WITHOUT (comparisons with it are skipped)"
    return f"graphdnn tests {torch} PyTorch"


def _compiler() -> str:
    try:
        return "compiled by NVRTC {}.{}".format(*nvrtc.loaded_version())
    except NotSupported as error:
        return f"NOT compiled, {error.rejections[0].reason}"


def _asks_for_gpu(config: pytest.Config) -> bool:
    words = config.getoption("markexpr").replace("(", " ").split()
    return "gpu" in words and words[max(0, words.index("gpu") - 1)] != "not"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    absent_tools.skip_if_wanted(report, RAISED_NOW)
    return report


def pytest_runtest_setup(item: pytest.Item) -> None:
    _running[0] = item.nodeid
    RAISED_NOW.clear()
    if item.get_closest_marker("torch"):
        pytest.importorskip("torch")
    if item.get_closest_marker("gpu") is None:
        return
    if available():
        pytest.skip(f"no GPU: {available()}")
    PROBLEMS["gpu tests"] += 1


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)  # set in the processes of pytest-xdist
    if output is not None:
        output.update(problems=dict(PROBLEMS), raised=sorted(RAISED), touched=sorted(TOUCHED), known=sorted(RULES))
        output["legacy"] = {name: sorted(tests) for name, tests in LEGACY.items()}
    elif _asks_for_gpu(session.config) and not session.config.option.collectonly and not PROBLEMS["gpu tests"]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker process saw."""
    output = getattr(node, "workeroutput", {})
    PROBLEMS.update(output.get("problems", {}))
    for name, tests in output.get("legacy", {}).items():
        LEGACY.setdefault(name, set()).update(tests)
    for seen, name in ((RAISED, "raised"), (TOUCHED, "touched"), (KNOWN, "known")):
        seen.update(output.get(name, ()))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _asks_for_gpu(terminalreporter.config):
        drawn = sum(count for kind, count in PROBLEMS.items() if kind.startswith("gpu ") and kind != "gpu tests")
        verdict = "" if PROBLEMS["gpu tests"] else f": FAILED, nothing ran on a GPU ({available() or 'none selected'})"
        terminalreporter.write_line(f"GPU: {PROBLEMS['gpu tests']} tests, {drawn} drawn problems executed{verdict}")
    terminalreporter.write_line(f"kernel text: {_compiler()}")
    for what, seen, known in (("rules raised", RAISED, KNOWN | set(RULES)), ("attributes used", TOUCHED, ATTRIBUTES)):
        missing = sorted(known - seen)
        terminalreporter.write_line(f"{what} in this run: {len(known) - len(missing)} of {len(known)}")
        if 0 < len(missing) <= 10:
            terminalreporter.write_line("  not: " + ", ".join(missing))
    _print_legacy(terminalreporter, terminalreporter.config.getoption("--legacy-table"))
    if path := terminalreporter.config.getoption("--legacy-results"):
        legacy_results.write(path, LEGACY, _asks_for_gpu(terminalreporter.config))
    for line in onnx_suite.lines([r for reports in terminalreporter.stats.values() for r in reports]):
        terminalreporter.write_line(line)
    for line in absent_tools.lines(terminalreporter.stats.get("skipped", ())):
        terminalreporter.write_line(line)
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(PROBLEMS.items()) if count > 1)
    terminalreporter.write_line(f"problems executed end to end: {sum(PROBLEMS.values())} ({kinds})")
