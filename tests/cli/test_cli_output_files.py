"""What commands write goes where the user points, whole, and nothing else is made or replaced."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from graphdnn.cli import main
from graphdnn.files import plan_from_json

TEXT = "pointwise x=f32[4,4] + relu"


def test_links_are_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real.html", tmp_path / "link.html"
    real.write_text("before", encoding="utf-8")
    link.symlink_to(real)
    assert main(["report", TEXT, "-o", str(link)]) == 0
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_permissions_stay(tmp_path: Path) -> None:
    file = tmp_path / "private.json"
    file.touch(mode=0o600)
    for _ in range(2):
        assert main(["run", TEXT, "--save-plan", str(file)]) == 0
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.stat().st_size


def test_pipes_stay_pipes(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text(encoding="utf-8")))
    reader.start()
    assert main(["report", TEXT, "-o", str(pipe)]) == 0
    reader.join(10)
    assert pipe.is_fifo()
    assert read[0].startswith("<!DOCTYPE html>")


def test_no_folder_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["report", TEXT], ["lock", TEXT], ["device", "h200"]):
        assert main([*command, "-o", str(tmp_path / "none" / "file")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_no_traceback() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "graphdnn", "explain", TEXT], stdout=full, stderr=-1, text=True, check=False
        )
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr
    assert "could not be written" in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="the shell is sh")
@pytest.mark.parametrize(
    ("command", "streams", "code", "said"),
    [
        (f"explain '{TEXT}'", ">&-", 0, ""),
        ("explain nonsense", ">&- 2>&-", 2, ""),
        ("explain -", "<&-", 2, "there is no stdin"),
        ("replay -", "", 2, "it is not UTF-8 text"),
    ],
)
def test_streams_that_are_closed_or_no_text(command: str, streams: str, code: int, said: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m graphdnn {command} {streams}"], input=b"\xff\xfe", capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "utf-8:strict"}, check=False,
    )  # fmt: skip
    assert ended.returncode == code
    assert b"Traceback" not in ended.stdout + ended.stderr
    assert said.encode() in ended.stderr


def test_a_plan_for_a_device_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    assert main(["run", TEXT, "--save-plan", str(file)]) == 0
    assert plan_from_json(file.read_text(encoding="utf-8"), "cpu").config.device.kind == "cpu"
