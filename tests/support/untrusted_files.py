"""Reads damaged files of every format and says what the interpreter was asked to do meanwhile.

    python tests/support/untrusted_files.py 1000000 [--seed N] [--format NAME ...]

Each text is a file of the library, or lines of another one, with bytes changed, entries taken out, put in, or exchanged.
Reading it has to end in a value or in an error of the library that says why, within a second, without importing,
compiling or running anything. Ends with code 1 where one did not; prints the text that did it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from file_mutations import damaged
from frontend_files import chain

from graphdnn import build, fuse, rank
from graphdnn.bundles import attempt, bundle_from_json, bundle_of
from graphdnn.device.profiles import PROFILES
from graphdnn.errors import GraphdnnError
from graphdnn.files import (
    PLAN_FORMAT,
    config_from_dict,
    digest_of,
    graph_from_json,
    graph_to_json,
    guarded,
    parse_document,
    plan_to_json,
    spec_from_json,
    spec_to_json,
)
from graphdnn.importers import read
from graphdnn.locks import lock_from_json, lock_of
from graphdnn.problem import parse

LONGEST = 1.0  # seconds for one text; most take a thousandth
MOST_MEMORY = 256 * 2**20  # bytes more than before the first text
FORBIDDEN = (
    "import", "exec", "compile", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.remove", "os.rename",
    "subprocess.Popen", "ctypes.dlopen", "socket.", "pickle.find_class", "open",
)  # fmt: skip

PROBLEM = "conv x=f16[8,16,9,9]nhwc w=f16[24,16,3,3]nhwc pad=1 stride=2 + bias + residual + relu"
GRAPHS = (
    PROBLEM,
    "matmul a=f32[4,8] b=f32[8,6] + bias + gelu",
    "norm layer x=f32[8,32]",
    "pool x=f32[1,4,9,9] max window=3",
)
LINES = {
    "benchdnn": '--reset --conv --dir=FWD_B --dt=f16 --stag=axb mb8g2ic16ih9iw9oc24oh9ow9kh3kw3sh1sw1ph1pw1dh0dw0n"a"\n'
    "--conv --dir=BWD_D --dt=s8:s8:s32 mb2ic8iw20oc8ow18kw3pw0n\n",
    "miopen": "MIOpenDriver convfp16 -n 8 -c 16 -H 9 -W 9 -k 24 -y 3 -x 3 -p 1 -q 1 -u 2 -v 2 -l 1 -j 1 -g 2 -F 1\n"
    "./bin/MIOpenDriver conv --in_layout NHWC --fil_layout NHWC -n 2 -c 4 -H 8 -W 8 -k 4 -y 1 -x 1 -F 2\n",
}


@dataclass(frozen=True, slots=True)
class Source:
    """A format: whole texts, and its reader."""

    texts: tuple[str, ...]
    load: Callable[[bytes], Any]
    is_json: bool = True
    is_sealed: bool = False  # carries a hash: half of the damaged texts get the right one

    def damaged(self, seed: int) -> Iterator[bytes]:
        """Without end."""
        rng = random.Random(seed)
        for round_ in range(10**9):
            for text in self.texts:
                if self.is_json:
                    yield from map(self._sealed if round_ % 2 else bytes, damaged(text, 64, rng.randrange(2**31)))
                else:
                    yield from (_line(text, rng) for _ in range(64))

    def _sealed(self, text: bytes) -> bytes:
        if not self.is_sealed:
            return text
        try:
            data = json.loads(text)
            data.pop("sha256", None)
            return json.dumps({**data, "sha256": digest_of(data)}).encode()
        except (ValueError, AttributeError, RecursionError, TypeError):
            return text


def _line(text: str, rng: random.Random) -> bytes:
    """Lines of words: words taken out, doubled, exchanged, numbers changed, or bytes changed."""
    kind = rng.randrange(5)
    words = text.split(" ")
    at, other = rng.randrange(len(words)), rng.randrange(len(words))
    if kind == 0:
        del words[at]
    elif kind == 1:
        words[at], words[other] = words[other], words[at]
    elif kind == 2:
        words.insert(at, rng.choice(("-1", "9" * 40, "nan", "--", "=", "x=[", "\x00", "1e999", words[other])))
    raw = bytearray(" ".join(words).encode())
    if kind >= 3:
        digits = [i for i, byte in enumerate(raw) if 48 <= byte < 58]
        for _ in range(rng.choice((1, 1, 3))):
            place = rng.choice(digits) if kind == 3 else rng.randrange(len(raw))
            raw[place : place + 1] = rng.choice((b"0", b"7", b"-", b"99999999999999999999", b"", b"\xff", b"]", b"."))
            digits = [i for i, byte in enumerate(raw) if 48 <= byte < 58] or [0]
    return bytes(raw)


def _decoded(load: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda text: load(text.decode("utf-8", "replace"))


def _configuration(text: bytes) -> Any:
    """What a plan's file says. Building the plan compiles text, which is the library's own."""
    return guarded(lambda: config_from_dict(parse_document(text, PLAN_FORMAT, sealed=True), None))


def sources() -> Mapping[str, Source]:
    """Every format that is read from files."""
    graphs = [parse(text).build_operation_graph() for text in GRAPHS]
    plans = [build(graph, device) for graph in graphs[:2] for device in ("cpu", "h200")]
    config = rank(graphs[0], "cpu").best
    return {
        "graph": Source(tuple(map(graph_to_json, graphs)), graph_from_json),
        "plan": Source(tuple(map(plan_to_json, plans)), _configuration, is_sealed=True),
        "device": Source(tuple(map(spec_to_json, PROFILES.values())), spec_from_json),
        "lock": Source((_lock(graphs),), lock_from_json),
        "bundle": Source((bundle_of(attempt(config, 0), "0.1.0").to_json(),), bundle_from_json, is_sealed=True),
        "problem": Source(GRAPHS, _decoded(lambda text: fuse(parse(text).build_operation_graph())), is_json=False),
        "cudnn-frontend": Source((chain(),), _decoded(lambda text: read(text, "cudnn-frontend"))),
        **{
            name: Source((text,), _decoded(lambda text, name=name: read(text, name)), is_json=False)  # type: ignore[misc]
            for name, text in LINES.items()
        },
    }


def _lock(graphs: list[Any]) -> str:
    named = {f"g{i}": graph for i, graph in enumerate(graphs)}
    return lock_of(named, PROFILES["h200"], dict(zip(named, GRAPHS, strict=True)), "0.1.0").to_json()


def _circle(text: str) -> bytes:
    """The graph with its first addition reading what the second one writes."""
    data = json.loads(text)
    data["operations"][1]["x"] = data["operations"][2]["y"]
    return json.dumps(data).encode()


@dataclass(slots=True)
class Outcome:
    """Of one format."""

    count: int = 0
    values: int = 0
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)


def _is_for_writing(arguments: Any) -> bool:
    """The library reads files of its own: kernel text."""
    return isinstance(arguments[2], int) and bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


class Watch:
    """What the interpreter is asked to do while a text is read."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: Counter[str] = Counter()
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: Any) -> None:
        if not self.is_on or not event.startswith(FORBIDDEN):
            return
        if event != "open" or _is_for_writing(arguments):
            self.seen[f"{event} {str(arguments)[:100]}"] += 1


def run(name: str, source: Source, count: int, seed: int, watch: Watch) -> Outcome:
    outcome = Outcome()
    for text in source.texts:  # loads what reading takes: modules are imported the first time
        source.load(text.encode())
    if name == "graph":
        with suppress(GraphdnnError):  # networkx compiles its wrappers when they are called for the first time
            source.load(_circle(source.texts[0]))
    for text in source.damaged(seed):
        if outcome.count == count or len(outcome.wrong) > 20:
            break
        outcome.count += 1
        watch.seen.clear()
        start, watch.is_on = time.process_time(), True
        said = ""
        try:
            source.load(text)
            outcome.values += 1
        except GraphdnnError as error:
            if not all(r.reason and r.fix for r in error.rejections):
                said = "an error without reasons"
        except BaseException as error:  # whatever it is, it is what is looked for
            said = f"{type(error).__name__}: {error}"
        watch.is_on = False
        seconds = time.process_time() - start  # of this process: the machine may be busy
        outcome.slowest = max(outcome.slowest, seconds)
        said = said or (f"took {seconds:.1f} s" if seconds > LONGEST else "") or ", ".join(watch.seen)
        if said:
            outcome.wrong.append(f"{name}: {said[:300]}\n  {text[:2000]!r}")
    return outcome


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("count", type=int, help="texts, divided among the formats")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", action="append", default=[])
    options = parser.parse_args()
    found = {name: source for name, source in sources().items() if not options.format or name in options.format}
    watch, wrong = Watch(), 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, source in found.items():
        outcome = run(name, source, -(-options.count // len(found)), options.seed, watch)
        wrong += len(outcome.wrong)
        refused = outcome.count - outcome.values
        print(f"{name:15s} {outcome.count:8d} texts, {outcome.values} values, {refused} refused,"
              f" slowest {outcome.slowest * 1e3:.0f} ms", flush=True)  # fmt: skip
        print("\n".join(outcome.wrong[:5]), end="\n" if outcome.wrong else "", flush=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    if grown > MOST_MEMORY:
        wrong += 1
        print(f"memory grew by {grown / 2**20:.0f} MiB")
    print("nothing wrong" if not wrong else f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
