"""Write the API reference as plain HTML files: ``make reference``. Its pages come from ``PAGES`` and the docstrings."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import shutil
import sys
from enum import Enum
from pathlib import Path

from pydantic import BaseModel

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]
OUTPUT = HERE.parent / "_build"
HELP_WIDTH = "88"  # columns of what argparse prints

from reference_pages import PAGES, Page, data_fields, described, members  # noqa: E402

from graphdnn.cli import parser_for  # noqa: E402
from graphdnn.v6.functions import functions  # noqa: E402


def heading(title: str, line: str = "=") -> str:
    return f"{title}\n{line * len(title)}"


def index_page() -> str:
    listed = "\n".join(f"   {file}" for file in (*(page.file for page in PAGES), "command_line"))
    introduction = (
        "This reference is generated from the docstrings. The tutorial, the glossary and the other pages are in the "
        "folder ``docs`` of the repository. Extents are lists of integers in the order N, C, D, H, W. Strides count "
        "elements. Times are seconds and sizes are bytes, unless a text says otherwise."
    )
    return f"{heading('graphdnn')}\n\n{introduction}\n\n.. toctree::\n   :maxdepth: 1\n\n{listed}\n"


def object_page(page: Page) -> str:
    parts = [heading(page.title), page.introduction, *map(directive, page.names)]
    if page.file == "v6":
        parts += legacy_calls()
    return "\n\n".join(parts) + "\n"


def directive(name: str) -> str:
    thing = described(name)
    if not inspect.isclass(thing):
        return f".. autofunction:: {name}"
    if issubclass(thing, Enum):
        return f".. autoclass:: {name}\n   :no-members:\n\n   {enumerators(thing)}"
    lines = [f".. autoclass:: {name}{constructor(thing)}"]
    kept = data_fields(thing)
    if kept:
        lines += ["", f"   Fields: {', '.join(f'``{field}``' for field in kept)}."]
    for member in own_members(thing):
        static = inspect.getattr_static(thing, member)
        is_read = isinstance(static, property) or type(static).__name__ == "cached_property"
        lines += ["", f"   .. {'autoproperty' if is_read else 'automethod'}:: {member}"]
    return "\n".join(lines)


def constructor(cls: type) -> str:
    """The parameters of a class whose ``__new__`` only chooses a subclass; Sphinx reads other classes itself."""
    if "__new__" not in vars(cls) or issubclass(cls, (BaseModel, Enum)):
        return ""
    signature = inspect.signature(cls.__init__)
    kept = [p for p in signature.parameters.values() if p.name != "self"]
    return str(signature.replace(parameters=kept, return_annotation=signature.empty)).replace("'", "")


def own_members(cls: type) -> list[str]:
    """The members that no base class with an entry of its own describes."""
    bases = [described(name) for page in PAGES for name in page.names if inspect.isclass(described(name))]
    told = {name for base in cls.__mro__[1:] if base in bases for name in vars(base)}
    return [name for name in members(cls) if name not in told or name in vars(cls)]


def enumerators(cls: type[Enum]) -> str:
    return "Members: " + ", ".join(f"``{member.name}`` = {member.value}" for member in cls) + "."


def legacy_calls() -> list[str]:
    """The legacy calls, a section for each family."""
    parts, families = [], dict.fromkeys(row.family for row in functions().values())
    for family in families:
        parts.append(heading(f"Family: {family}", "-"))
        parts += [f".. autofunction:: graphdnn.v6.{row.name}" for row in functions().values() if row.family == family]
    return parts


def command_line_page() -> str:
    """What ``--help`` prints, for the program and for each command."""
    overall = help_of([])
    commands = [action for action in parser_for(["--help"])._actions if action.choices and not action.option_strings]
    names = list(commands[0].choices or ())
    introduction = "The texts below are what ``graphdnn --help`` and ``graphdnn COMMAND --help`` print."
    parts = [heading("Command line"), introduction, literal(overall)]
    for name in names:
        parts += [heading(f"graphdnn {name}", "-"), literal(help_of([name]))]
    return "\n\n".join(parts) + "\n"


def help_of(words: list[str]) -> str:
    printed, width = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = HELP_WIDTH
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            parser_for([*words, "--help"]).parse_args([*words, "--help"])
    finally:
        os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)
    return printed.getvalue()


def literal(text: str) -> str:
    return ".. code-block:: text\n\n" + "\n".join(f"   {line}".rstrip() for line in text.splitlines())


def texts() -> dict[str, str]:
    """The text of each page in reStructuredText, by file name."""
    pages = {f"{page.file}.rst": object_page(page) for page in PAGES}
    return {"index.rst": index_page(), **pages, "command_line.rst": command_line_page()}


def main() -> int:
    from sphinx.cmd.build import build_main

    source = OUTPUT / "source"
    shutil.rmtree(OUTPUT, ignore_errors=True)
    source.mkdir(parents=True)
    for name, text in texts().items():
        (source / name).write_text(text, encoding="utf-8")
    shown = OUTPUT / "reference"
    # A warning is an error: a docstring that cannot be read as it was meant would be shown wrong.
    code = build_main(["-b", "html", "-q", "-W", "--keep-going", "-c", str(HERE), str(source), str(shown)])
    if not code:
        print(f"wrote {shown.relative_to(HERE.parent.parent)}/index.html")
    return code


if __name__ == "__main__":
    sys.exit(main())
