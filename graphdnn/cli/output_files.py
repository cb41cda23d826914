"""Files that commands write: whole or not at all, and a reason where they cannot be written."""

from __future__ import annotations

import os
from pathlib import Path

from graphdnn.errors import BadParam
from graphdnn.rules import Rule
from graphdnn.storage import write_atomically

WRITING = Rule(
    id="cli.output",
    expected="a file that can be written",
    reason="{detail}",
    fix="check the folder and its permissions",
)


def write_file(path: Path, text: str) -> None:
    """Raises ``BadParam`` when the file cannot be written; what was there is then still there.

    Links are followed, a file that is there keeps its permissions, and what is no file (a pipe, a terminal) is written
    to as it is. Folders are not made: a path with a wrong letter would leave one behind.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "this is a folder")
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8", errors="backslashreplace") as stream:
                stream.write(text)
            return
        target = Path(os.path.realpath(path))
        if not target.parent.is_dir():
            raise FileNotFoundError(2, f"there is no folder {target.parent}")
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask()
        write_atomically(target, text.encode("utf-8", "backslashreplace"))
        target.chmod(mode)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadParam(WRITING.reject("command line", "file", str(path), detail=error.strerror or str(error))) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
