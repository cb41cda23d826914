"""HTML as text: elements whose attributes and content are escaped, tables, and what folds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already. Everything else is escaped on the way in."""

    __slots__ = ()


def text(value: object) -> Markup:
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def joined(parts: Iterable[object], between: str = "") -> Markup:
    return Markup(between.join(map(text, parts)))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """``element("td", 3, class_="number")``; a trailing underscore of a name falls away, others become hyphens."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{written}>{joined(content)}</{tag}>")


def table(head: Sequence[str], rows: Iterable[Sequence[object]], numbers: Sequence[int] = ()) -> Markup:
    """In a box that scrolls by itself where the window is narrow; ``numbers`` are columns set to the right."""

    def cells(tag: str, row: Sequence[object]) -> Markup:
        return joined(element(tag, value, class_="number" if i in numbers else None) for i, value in enumerate(row))

    body = joined(element("tr", cells("td", row)) for row in rows)
    whole = element("table", element("thead", element("tr", cells("th", head))), element("tbody", body))
    return element("div", whole, class_="scroll")


def facts(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Names and values, those without a value left out."""
    shown = [(name, value) for name, value in pairs if str(value)]
    return element("dl", *(part for name, value in shown for part in (element("dt", name), element("dd", value))))


def folded(summary: object, *content: object, is_open: bool = False) -> Markup:
    attributes = {"open": "open"} if is_open else {}
    return element("details", element("summary", summary), *content, **attributes)


class Section(Markup):
    """A part of a page that the links at its top lead to."""

    heading: str
    anchor: str


def section(title: str, *content: object) -> Section:
    anchor = "".join(c if c.isalnum() else "-" for c in title.lower())
    made = Section(element("section", element("h2", title), *content, id=anchor))
    made.heading, made.anchor = title, anchor
    return made
