"""The report is one page that stands alone, says everything, and lets nothing of the graph become markup."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from time import perf_counter

import pytest

from graphdnn import Graph, NotSupported, rank
from graphdnn.analysis.report import Contents, comparison_page, contents_of, page
from graphdnn.cli import main
from graphdnn.cli.exit_codes import Exit
from graphdnn.cuda import nvrtc
from graphdnn.problem import parse, random_bindings

VOID = {"meta", "br", "hr", "rect", "line", "circle", "path", "polyline"}
TAGS = VOID | {
    "a", "b", "body", "code", "dd", "defs", "details", "div", "dl", "dt", "footer", "g", "h1", "h2", "h3", "head", "header",
    "html", "main", "marker", "nav", "p", "pre", "section", "span", "style", "summary", "svg", "table", "tbody", "td",
    "text", "th", "thead", "title", "tr",
}  # fmt: skip
TEXTS = (
    "conv x=f32[4,16,14,14] w=f32[32,16,3,3] pad=1 + bias + relu",
    "conv x=f16[8,64,28,28]nhwc w=f16[64,64,3,3]nhwc pad=1 + bias + residual + relu -> reduce add [1,64,1,1]",
    "matmul a=f32[64,128] b=f32[128,96] + bias + gelu",
    "conv x=i8[2,32,9,9]nhwc w=i8[32,32,3,3]nhwc pad=1 compute=i32 out=i32",
)


class _Page(HTMLParser):
    """Every element one of ours, closed in the order in which it was opened; what the page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, f"<{tag}> is no element of these pages"
        for name, value in attrs:
            assert not name.startswith("on"), f"{tag} has a handler: {name}"
            if name == "id":
                self.ids.append(str(value))
            if name in ("href", "src", "action", "data"):
                self.links.append(str(value))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def _contents(text: str, device: str = "cpu", **options: object) -> Contents:
    return contents_of(rank(parse(text).build_operation_graph(), device), title=text, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("text", TEXTS)
def test_page_is_whole_and_stands_alone(text: str, device: str) -> None:
    contents = _contents(text, device)
    made = page(contents)
    seen = _Page(made)
    assert not seen.open
    assert set(seen.links) == {f"#{name}" for name in seen.ids if name != "tip"}
    assert not re.search(r"url\((?!#)|@import|https?://", made)
    words = " ".join(seen.words)
    assert contents.plan is not None
    for kernel in contents.kernels:
        assert kernel.op.name in words
        assert all(op.label() in words for op in kernel.operations)
    for config in contents.configs:
        assert config.name in words
    shown = {e.rule for e in contents.ledger if e.rule != f"{e.subject.engine}.operation"}
    assert {rule for rule in shown if rule not in words} == set()


def test_names_are_no_markup() -> None:
    """A graph may come from a stranger."""
    hostile = '<img src=x onerror="alert(1)"> & </script><b>'
    graph = Graph(hostile, compute_data_type="float32", io_data_type="float32")
    x = graph.tensor([2, 8, 6, 6], name=hostile)
    graph.relu(graph.bias(x, graph.tensor([1, 8, 1, 1], name="'\"")), name=hostile).set_output(True)
    made = page(contents_of(rank(graph.build_operation_graph(), "cpu")))
    seen = _Page(made)
    assert not seen.open
    assert hostile in " ".join(seen.words)


def test_a_rewrite_is_shown_with_its_launches() -> None:
    graph = parse("conv x=f16[8,64,20,20] w=f16[64,8,3,3] pad=1 + bias").build_operation_graph()
    ranking = rank(graph, "h200")
    assert ranking.best.name == "cuda_layout_transform"
    words = _Page(page(contents_of(ranking))).words
    assert "rewrite" in words
    for line in str(ranking.best.choices[0].rewrite).splitlines():
        assert line in words


def test_measured_times_are_shown() -> None:
    graph = parse(TEXTS[0])
    contents = contents_of(rank(graph.build_operation_graph(), "cpu"), bindings=random_bindings(graph), repeats=3)
    (timing,) = contents.timings
    assert len(timing.seconds) == 3
    assert timing.low <= timing.middle <= timing.high
    made = page(contents)
    assert not _Page(made).open
    assert "[0] measured: " in " ".join(_Page(made).words)
    assert 'class="ring"' in made
    assert 'id="times"' in made


def test_a_graph_that_nothing_serves_has_a_page() -> None:
    from graphdnn.device.profiles import device_spec
    from graphdnn.engines import ENGINE_BY_NAME
    from graphdnn.fusion import fuse
    from graphdnn.heuristics import Ranking

    fused = fuse(parse(TEXTS[2]).build_operation_graph())
    ranking = Ranking(fused, device_spec("h200"), engines=[ENGINE_BY_NAME["cuda_direct"]])
    contents = contents_of(ranking)
    made = page(contents)
    assert contents.plan is None
    assert not _Page(made).open
    assert "no engine serves this graph" in made


def test_without_a_compiler_the_page_has_a_ranking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines serve the graph; only NVRTC is missing. The page says so, and the command ends as not executed."""

    def missing(*_: object) -> None:
        raise NotSupported(
            nvrtc.NO_BINDINGS.reject("NVRTC", "cuda-bindings", "missing", detail="No module named 'cuda'")
        )

    monkeypatch.setattr("graphdnn.analysis.report.report_data.ExecutionPlan", missing)
    contents = contents_of(rank(parse(TEXTS[0]).build_operation_graph(), "h200"))
    assert contents.plan is None
    assert contents.not_compiled is not None
    assert contents.predicted_seconds
    shown = page(contents)
    assert "no engine serves" not in shown.lower()
    assert "graphdnn[nvrtc]" in shown
    assert "cuda_" in shown, "the ranking is there"
    file = tmp_path / "page.html"
    assert main(["report", TEXTS[0], "--device", "h200", "-o", str(file)]) == Exit.NOT_EXECUTED
    assert file.exists()
    assert "graphdnn[nvrtc]" in capsys.readouterr().err
    beside = comparison_page(contents, contents)
    assert "least time" not in beside, "nothing is known of the kernels"
    assert contents.configs[0].name in beside
    assert "graphdnn[nvrtc]" in beside
    assert "no engine serves" not in beside


def test_charts_beside_each_other_have_one_scale() -> None:
    """The same decades on both axes, though one graph's points are far from the other's."""
    made = comparison_page(
        _contents("matmul a=f16[1,4096,4096] b=f16[1,4096,4096]"), _contents("pointwise x=f32[8,8] + relu")
    )
    charts = [
        re.findall(r'<line class="grid"[^>]*/><text[^>]*>([^<]*)</text>', c) for c in made.split('class="chart"')[1:]
    ]
    assert len(charts) == 2
    assert charts[0] == charts[1]
    assert len(charts[0]) > 6


def test_comparison_marks_what_differs() -> None:
    made = comparison_page(_contents(TEXTS[0]), _contents(TEXTS[3]))
    assert not _Page(made).open
    assert "<b>numeric class</b>" in made
    assert "<b>device</b>" not in made
    assert "<td>measured</td>" not in made  # on neither side
    assert made.count('<div class="sides">') == 2  # long names are broken there, so that both columns are seen


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "page.html"
    start = perf_counter()
    assert main(["report", TEXTS[1], "--device", "h200", "-o", str(target)]) == 0
    assert perf_counter() - start < 30  # 3 s where nobody else computes and kernels are in the cache
    assert capsys.readouterr().out.strip() == str(target)
    assert target.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert main(["report", TEXTS[0], "-o", str(tmp_path)]) == 2
    assert main(["report", "conv x=", "-o", str(target)]) == 2
    assert target.exists()  # what was there before stays


@pytest.mark.long
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [400, 1300])
def test_looks_right_in_a_browser(tmp_path: Path, width: int, dark: bool) -> None:
    """Nothing is wider than the window, and a dark scheme has a dark page. Needs Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium here")
    made = page(_contents(TEXTS[1], "h200"))
    probe = (
        "<script>document.title = JSON.stringify([document.documentElement.scrollWidth, innerWidth,"
        " getComputedStyle(document.body).backgroundColor])</script>"
    )
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    source = tmp_path / "page.html"
    source.write_text(policy.sub("", made).replace("</body>", f"{probe}</body>"), encoding="utf-8")
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else ["--blink-settings=preferredColorScheme=1"]
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900", *scheme,
               "--dump-dom", source.as_uri()]  # fmt: skip
    dom = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(r"<title>\[(\d+),(\d+),.*?(\d+), (\d+), (\d+)", dom)
    assert found is not None
    whole, window, red, green, blue = map(int, found.groups())
    assert whole <= window
    assert (red + green + blue < 200) is dark
