"""Names of a file as commands print them: no escape reaches the terminal, no name begins a line, every name is printable."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from graphdnn import graph_to_json
from graphdnn.cli import main
from graphdnn.escaped import escaped, escaped_lines
from graphdnn.problem import parse

PROBLEM = "conv x=f32[1,4,8,8] w=f32[4,4,3,3] pad=1 + bias + relu"
NAMES = {
    "terminal": "\x1b[2J\x1b]0;owned\x07x",
    "newline": "x\nFORGED: all is well",
    "return": "x\rFORGED: all is well",
    "separator": "x\u2028FORGED: all is well",
    "right to left": "x\u202eFORGED",
    "control of 8 bits": "x\x9b2J",
    "surrogate": "x\ud800",
    "letters": "\u00e9t\u00e9",
}
COMMANDS = (
    ("explain",), ("explain", "--source"), ("explain", "--device", "h200", "--source"), ("run", "--device", "cpu"),
    ("run", "--device", "cpu", "--no-verify"), ("kernel", "--device", "h200"), ("trace", "--device", "cpu"), ("certify",),
    ("repair",), ("cuts", "--device", "h200"), ("lock",), ("tune", "--no-db", "--device", "cpu", "--budget", "0.2"),
)  # fmt: skip


def graph_file(path: Path, name: str) -> Path:
    """A graph in which all that can have a name has this one."""
    data = json.loads(graph_to_json(parse(PROBLEM).build_operation_graph()))
    data["name"] = name
    for entry in (*data["tensors"], *data["operations"]):
        entry["name"] = name
        if "origin" in entry:
            entry["origin"] = name
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def printed(*words: str) -> str:
    """stdout and stderr of a command on a terminal that has ASCII only."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        main(words)
    return "".join(stream.buffer.getvalue().decode("ascii") for stream in (out, err))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words))
def test_names_are_printed_as_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path / "cache"))
    command, *more = words
    text = printed(command, str(graph_file(tmp_path / "graph.json", name)), *more)
    assert text
    assert {c for c in text if ord(c) < 32 or ord(c) == 127} <= {"\n", "\t"}
    assert not [line for line in text.splitlines() if line.lstrip().startswith("FORGED")]


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_locks_databases_and_refusals_print_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHDNN_CACHE_DIR", str(tmp_path / "cache"))
    graph = graph_file(tmp_path / "graph.json", name)
    printed("lock", str(graph), "--device", "h200", "-o", "a.lock")
    data = json.loads((tmp_path / "a.lock").read_text(encoding="utf-8"))
    for entry in data["graphs"]:
        entry["name"] = name
        entry["stops"] = [[name, name]]
        entry["numbers"] = [name]
        for kernel in entry["kernels"]:
            kernel.update(engine=name, rule=name, operations=[name])
    data["library"] = name
    (tmp_path / "a.lock").write_text(json.dumps(data), encoding="utf-8")
    broken: dict[str, Any] = json.loads(graph.read_text(encoding="utf-8"))
    broken["operations"][0]["conv"]["pre_paddings"] = [name, 1]
    (tmp_path / "broken.json").write_text(json.dumps(broken), encoding="utf-8")
    unknown = tmp_path / "unknown.json"
    unknown.write_text(json.dumps({"format": name}), encoding="utf-8")
    texts = [printed("check", "a.lock"), printed("explain", "broken.json"), printed("explain", str(unknown)),
             printed("replay", str(unknown)), printed("check", "a.lock", "--json")]  # fmt: skip
    for text in texts:
        assert text
        assert {c for c in text if ord(c) < 32} <= {"\n", "\t"}
        assert not [line for line in text.splitlines() if line.lstrip().startswith("FORGED")]


def test_what_is_printable_stays() -> None:
    assert escaped("conv1 \u00e9") == "conv1 \u00e9"
    assert escaped("a\nb\x1b\ud800\u202e") == "a\\nb\\x1b\\ud800\\u202e"
    assert escaped_lines("a\n\x1bb") == "a\n\\x1bb"


def test_a_process_whose_terminal_has_ascii_only(tmp_path: Path) -> None:
    path = graph_file(tmp_path / "graph.json", "\u00e9\ud800")
    ended = subprocess.run(
        [sys.executable, "-m", "graphdnn", "explain", str(path)], capture_output=True, check=False,
        env={"PYTHONIOENCODING": "ascii", "PATH": "", "GRAPHDNN_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert b"Traceback" not in ended.stderr
