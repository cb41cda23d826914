"""The ``graphdnn`` command in this process."""

from __future__ import annotations

import pytest

from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = Exit.OK) -> tuple[str, str]:
    """(stdout, stderr) of a command that ends with ``code``; what it prints is ASCII and no traceback."""
    ended = main(list(arguments))
    out, err = capsys.readouterr()
    assert ended == code, out + err
    assert (out + err).isascii()
    assert "Traceback" not in out + err
    assert all(line == line.rstrip() for line in out.splitlines())
    return out, err


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = Exit.OK) -> str:
    """Both streams of it."""
    return "".join(answer(capsys, *arguments, code=code))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """stderr of a command that prints nothing else."""
    out, err = answer(capsys, *arguments, code=code)
    assert out == ""
    assert err
    return err
