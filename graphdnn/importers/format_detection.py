"""The formats that can be read, and which one a text is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphdnn.errors import MalformedFile
from graphdnn.files import LARGEST_FILE, TOO_LARGE, guarded, malformed
from graphdnn.importers import benchdnn, cudnn_frontend, miopen
from graphdnn.importers.import_result import Imported
from graphdnn.rules import Rule

UNRECOGNISED = Rule(
    id="import.format",
    expected="lines of {known}",
    reason="the text does not show its format",
    fix="name the format with --format",
)


@dataclass(frozen=True, slots=True)
class Format:
    """One source: how it looks, and its reader."""

    looks_like: Callable[[str], bool]
    read: Callable[[str, bool], Imported]
    example: str


FORMATS: Mapping[str, Format] = {
    "cudnn-frontend": Format(cudnn_frontend.looks_like, cudnn_frontend.read, "what str(graph) prints"),
    "miopen": Format(miopen.looks_like, miopen.read, "MIOpenDriver convfp16 -n 64 -c 64 -H 56 -W 56 -k 64 -p 1 -q 1"),
    "benchdnn": Format(benchdnn.looks_like, benchdnn.read, '--conv --dir=FWD_B --dt=f16 mb64ic64ih56oc64kh3ph1n"c2"'),
}


def read(text: str, format: str | None = None, channels_last: bool = False) -> Imported:
    """Read the problems of another library's log or benchmark list.

    Args:
        text: The source.
        format: The name of a format, or None to detect it.
        channels_last: True for NHWC if the source leaves the layout to the library.

    Returns:
        The problems, and a rejection for each line that was refused.

    Raises:
        MalformedFile: The format is unknown or cannot be detected.
    """
    if len(text) > LARGEST_FILE:
        raise malformed(TOO_LARGE, "size", f"{len(text)} characters", limit=LARGEST_FILE)
    found = format or next((name for name, row in FORMATS.items() if row.looks_like(text)), None)
    if found is None or found not in FORMATS:
        raise MalformedFile(UNRECOGNISED.reject("import", "format", found or "unknown", known=", ".join(FORMATS)))
    row = FORMATS[found]
    return guarded(lambda: row.read(text, channels_last))
