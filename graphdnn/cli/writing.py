"""Files that commands write: whole or not at all, and a reason where they cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

from graphdnn.cuda.folder import write_whole
from graphdnn.errors import BadParam
from graphdnn.rules import Rule

WRITING = Rule(
    id="cli.output",
    expected="a file that can be written",
    reason="{detail}",
    fix="check the folder and its permissions",
)


def write_file(path: Path, text: str) -> None:
    """Raises ``BadParam`` when the file cannot be written; what was there is then still there."""
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "this is a folder")
        write_whole(path, text.encode())
        path.chmod(0o666 & ~_umask())
    except OSError as error:
        raise BadParam(WRITING.reject("command line", "file", str(path), detail=error.strerror or str(error))) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
