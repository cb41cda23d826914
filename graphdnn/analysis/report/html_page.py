"""The page: one file without anything from elsewhere, for wide and narrow windows, light and dark."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from graphdnn.analysis.certificate import Certificate
from graphdnn.analysis.report.charts import bars, roofline
from graphdnn.analysis.report.diagnostic_sections import cuts_section, refusals_section, repairs_section
from graphdnn.analysis.report.graph_drawing import draw_fused, draw_graph
from graphdnn.analysis.report.html import Markup, Section, element, joined, section, table
from graphdnn.analysis.report.kernel_sections import kernels_section, roofline_section
from graphdnn.analysis.report.report_data import Contents
from graphdnn.heuristics import EngineConfig
from graphdnn.text_format import plural, seconds, size


@cache
def _style() -> str:
    return (Path(__file__).parent / "style.css").read_text(encoding="utf-8")


def page(contents: Contents, version: str = "") -> str:
    """The report of one graph on one device as one HTML page.

    Args:
        contents: The contents.
        version: The version of the library, for the end of the page.

    Returns:
        The text of the page.
    """
    sections: list[Markup] = [
        _graph(contents), kernels_section(contents.kernels), roofline_section(contents.kernels, contents.measured),
        _times(contents), _ranking(contents), refusals_section(contents.ledger), repairs_section(contents.repairs),
        cuts_section(contents.cuts), _certificate(contents.certificate),
    ]  # fmt: skip
    return whole(f"{contents.title}: graphdnn", [_header(contents), _links(sections)], sections, version)


def whole(title: str, head: list[Markup], sections: list[Markup], version: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"{element('title', title)}<style>{_style()}</style></head><body>"
        f"{element('header', *head)}{element('main', *sections)}"
        f"{element('footer', f'graphdnn {version}')}</body></html>\n"
    )


def _header(contents: Contents) -> Markup:
    fused, device = contents.ranking.fused, contents.ranking.device
    counts = plural(len(fused.graph.operations), "operation"), plural(len(fused), "kernel")
    tiles = [(f"{counts[0]} in {counts[1]}", "fused"), (device.name, "device")]
    if contents.not_compiled is not None:
        tiles.append((seconds(contents.predicted_seconds or 0.0), "predicted"))
        tiles.append(("not compiled", contents.missing))
    elif contents.plan is None:
        tiles.append(("none", "no engine serves this graph: see the refusals"))
    else:
        predicted = contents.plan.config.predicted_seconds
        tiles.append((seconds(predicted), f"predicted; {seconds(contents.floor_seconds or 0.0)} at the least"))
        tiles.append((size(contents.plan.workspace_size), "workspace"))
    tiles += [(seconds(t.middle), f"measured: {t.name}") for t in contents.timings[-1:]]
    shown = joined(element("div", element("b", value), element("span", name), class_="tile") for value, name in tiles)
    return joined(
        [
            element("h1", contents.title),
            element("p", element("code", contents.plan_name)),
            element("div", shown, class_="tiles"),
        ]
    )


def _links(sections: list[Markup]) -> Markup:
    shown = (part for part in sections if isinstance(part, Section))
    return element("nav", *(element("a", part.heading, href=f"#{part.anchor}") for part in shown))


def _graph(contents: Contents) -> Markup:
    fused = contents.ranking.fused
    before = element("div", element("h3", "as it was given"), draw_graph(fused.graph))
    after = element("div", element("h3", "as kernels"), draw_fused(fused))
    about = (
        "Solid lines pass through memory, dashed ones are virtual: they have no memory unless two kernels share them."
    )
    return section("Graph", element("p", about, class_="soft"), element("div", before, after, class_="pair"))


def _times(contents: Contents) -> Markup:
    if not contents.timings:
        return Markup("")
    rows = [(t.name, t.low, t.middle, t.high) for t in contents.timings]
    count = len(contents.timings[-1].seconds)
    about = f"Bars end at the median of {plural(count, 'execution')}, whiskers reach from the fastest to the slowest."
    return section("Times", element("p", about, class_="soft"), bars(rows))


def _ranking(contents: Contents) -> Markup:
    ranking = contents.ranking
    if not contents.configs:
        return section("Ranking", element("p", "No engine serves this graph.", class_="bad"))
    rows = [_config(i, config) for i, config in enumerate(contents.configs)]
    about = f"Mode {ranking.mode.name} on {ranking.device.name}, best first; the first ones are shown."
    head = ("", "engine", "predicted", "workspace", "notes")
    predicted = [(f"{i} {c.name}", *(c.predicted_seconds,) * 3) for i, c in enumerate(contents.configs)]
    return section("Ranking", element("p", about, class_="soft"), table(head, rows, (0, 2, 3)), bars(predicted))


def _config(i: int, config: EngineConfig) -> tuple[object, ...]:
    notes = ", ".join((*config.remarks, *(note.name for note in config.behavior_notes)))
    return i, element("code", config.name), seconds(config.predicted_seconds), size(config.workspace_size), notes


def _certificate(certificate: Certificate | None) -> Markup:
    if certificate is None:
        return Markup("")
    exact = "Every plan of this class computes the same bits." if certificate.is_exact else "Rounded; at most so much:"
    parts: list[Markup] = [element("p", exact)]
    for title, entries in (
        ("numeric class", tuple(dict.fromkeys(map(str, certificate.numeric_class.operations)))),
        ("each operation adds", certificate.operations),
        ("overflow", certificate.integers),
        ("outputs", certificate.outputs),
        ("notes", certificate.notes),
    ):
        if entries:
            parts.append(element("h3", title))
            parts += [element("p", str(entry)) for entry in entries]
    return section("Certificate", *parts)


def _class_of(contents: Contents) -> Markup:
    if contents.certificate is None:
        return Markup("")
    operations = dict.fromkeys(map(str, contents.certificate.numeric_class.operations))
    return joined(element("div", line) for line in operations)


def comparison_page(left: Contents, right: Contents, version: str = "") -> str:
    """Two reports on one HTML page, with the differences first.

    Args:
        left: The contents of the left report.
        right: The contents of the right report.
        version: The version of the library, for the end of the page.

    Returns:
        The text of the page.
    """
    pairs = (left, right)
    rows = [
        ("device", *(c.ranking.device.name for c in pairs)),
        ("kernels", *(len(c.ranking.fused) for c in pairs)),
        ("plan", *(c.plan_name or "none: no engine serves this graph" for c in pairs)),
        ("not compiled", *(c.missing for c in pairs)),
        ("predicted", *("" if c.predicted_seconds is None else seconds(c.predicted_seconds) for c in pairs)),
        ("least time", *("" if c.floor_seconds is None else seconds(c.floor_seconds) for c in pairs)),
        ("measured", *(seconds(c.timings[-1].middle) if c.timings else "" for c in pairs)),
        ("workspace", *("" if c.plan is None else size(c.plan.workspace_size) for c in pairs)),
        ("rules that refused", *(len(c.ledger.rules) for c in pairs)),
        ("numeric class", *map(_class_of, pairs)),
    ]
    marked = [
        (element("b", name) if str(a) != str(b) else name, a, b) for name, a, b in rows if str(a) or str(b)
    ]  # what differs stands out
    only = [
        (", ".join(r for r in a.ledger.rules if r not in b.ledger.rules) or "none") for a, b in (pairs, (right, left))
    ]
    drawn = [element("div", element("h3", c.title), draw_fused(c.ranking.fused)) for c in pairs]
    points = [(c.kernels, c.measured) for c in pairs]
    roofs = [element("div", element("h3", c.title), roofline(c.kernels, c.measured, points)) for c in pairs]
    sections: list[Markup] = [
        section("Side by side", element("div", table(("", left.title, right.title), marked), class_="sides")),
        section("Kernels", element("div", *drawn, class_="pair")),
        section("Refused only here", element("div", table((left.title, right.title), [only]), class_="sides")),
        section("Rooflines", element("div", *roofs, class_="pair")),
    ]
    title = f"{left.title} and {right.title}"
    return whole(f"{title}: graphdnn", [element("h1", title), _links(sections)], sections, version)
