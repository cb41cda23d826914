"""What a report says of refusals, repairs and cuts."""

from __future__ import annotations

from graphdnn.analysis.cuts import Cuts
from graphdnn.analysis.diagnostics import KINDS, Diagnostic, DiagnosticList
from graphdnn.analysis.repairs import Repairs
from graphdnn.analysis.report.html import Markup, element, facts, folded, joined, section, table
from graphdnn.text_format import plural, seconds, size

_VERDICTS = {"pays": "good", "neutral": "soft", "hurts": "bad"}


def refusals_section(ledger: DiagnosticList) -> Markup:
    """By kind, and within it by subject; engines for other kinds of operation come last, as a list of names."""
    if not len(ledger):
        return section("Refusals", element("p", "Nothing was refused.", class_="note"))
    foreign = [e for e in ledger if _is_foreign(e)]
    elsewhere = {_place(e) for e in foreign}
    declined = {_place(e) for e in ledger if e.kind == "engine"}
    parts = []
    for kind, meaning in KINDS.items():
        entries = [e for e in ledger if _kind(e, declined) == kind and _place(e) not in elsewhere]
        if entries:
            parts.append(element("h3", f"{kind}: {meaning}"))
            parts += [_subject(subject, [e for e in entries if e.subject.text == subject])
                      for subject in dict.fromkeys(e.subject.text for e in entries)]  # fmt: skip
    if foreign:
        names = ", ".join(dict.fromkeys(e.subject.engine for e in foreign))
        head = f"{plural(len({e.subject.engine for e in foreign}), 'engine')} for other kinds of operation"
        parts.append(folded(head, element("p", names)))
    return section("Refusals", *parts)


def _is_foreign(entry: Diagnostic) -> bool:
    return entry.rule == f"{entry.subject.engine}.operation"


def _place(entry: Diagnostic) -> tuple[int | None, str]:
    return entry.subject.fused, entry.subject.engine


def _kind(entry: Diagnostic, declined: set[tuple[int | None, str]]) -> str:
    """A filter's word about an engine that does not serve the operation anyway stands with the engine's own."""
    return "engine" if entry.kind == "filter" and _place(entry) in declined else entry.kind


def _subject(subject: str, entries: list[Diagnostic]) -> Markup:
    return folded(
        joined([element("b", subject), f": {', '.join(dict.fromkeys(e.rule for e in entries))}"]),
        *(_entry(entry) for entry in entries),
    )


def _entry(entry: Diagnostic) -> Markup:
    return facts([
        ("found", f"{entry.attribute} = {entry.actual}"), ("required", entry.required), ("why", entry.reason),
        ("fix", entry.fix), ("created", ", ".join(o for o in entry.subject.origins if o)),
        ("rule", element("code", f"{entry.rule}, {entry.documented}")),
    ])  # fmt: skip


def repairs_section(repairs: Repairs | None) -> Markup:
    if repairs is None:
        words = "The graph is large; graphdnn repair looks for what would be accepted."
        return section("Repairs", element("p", words, class_="note"))
    if not len(repairs):
        return section("Repairs", element("p", "No edit was found that would be accepted and helps.", class_="note"))
    rows = [
        (i, joined([element("b", r.words), *(element("div", element("code", line)) for line in r.changes)]), r.gain,
         ", ".join(r.mends))
        for i, r in enumerate(repairs, start=1)
    ]  # fmt: skip
    about = "Smallest edits first. Each was tried: the changed graph is legal and does what is said."
    return section("Repairs", element("p", about, class_="soft"), table(("", "edit", "gain", "mends"), rows, (0,)))


def cuts_section(cuts: Cuts | None) -> Markup:
    if cuts is None or not len(cuts):
        return Markup("")
    rows = []
    for cut in cuts:
        verdict = cut.verdict
        sides = " | ".join(" + ".join(side.operations) for side in (cut.before, cut.after))
        word = element("span", verdict.word, class_=_VERDICTS[verdict.word])
        rows.append((sides, seconds(cut.split.seconds), size(max(0, cut.bytes_saved)), cut.launches_saved,
                     joined([word, f" ({verdict.gain:+.0%})"])))  # fmt: skip
    about = (
        f"Whether one plan is worth it where kernels of your own could take over: the whole takes"
        f" {seconds(cuts.whole.seconds)}; differences below {cuts.margin:.0%} say nothing."
    )
    head = ("cut", "as two plans", "traffic saved", "launches saved", "one plan")
    return section("Cuts", element("p", about, class_="soft"), table(head, rows, (1, 2, 3)))
