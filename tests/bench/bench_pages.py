"""How fast an engine's metrics page is read: pdctl's reader beside prometheus_client's parser on the same bytes.

usage: python tests/bench/bench_pages.py [--small]

The pages are a recorded one of release 0.5.23 and the same page as an engine of more ranks writes it. Both readers end
at the same wanted values, which is checked first. Rounds are interleaved; medians of CPU seconds are shown.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pdctl import facts
from pdctl.facts import names
from pdctl.facts.page import read_page
from pdctl.model.answer import Answer, Fact, Missed
from pdctl.model.cluster import Instance, Role

RECORDED = Path(__file__).parents[1] / "unit" / "facts" / "data" / "http" / "prefill-0.5.23-load-whole.prom.gz"
SIZES = (("as recorded", 0), ("115 KB", 115_000), ("1.5 MB", 1_500_000))
ENGINE = Instance("prefill-0", Role.PREFILL)
TARGET = 20.0
Values = dict[str, list[tuple[tuple[tuple[str, str], ...], str]]]


def grown(page: bytes, size: int) -> bytes:
    """The page with the series of more tensor ranks, family by family, until it has about that size."""
    lines = page.splitlines(keepends=True)
    ranked = [at for at, line in enumerate(lines) if b'tp_rank="0"' in line]
    length, rank = len(page), 0
    copies: dict[int, list[bytes]] = {}
    while ranked and length < size:
        rank += 1
        for at in ranked:
            if length >= size:
                break
            line = lines[at].replace(b'tp_rank="0"', b'tp_rank="%d"' % rank)
            copies.setdefault(at, []).append(line)
            length += len(line)
    return b"".join(line + b"".join(copies.get(at, ())) for at, line in enumerate(lines))


def read_all(body: bytes) -> None:
    """What pdctl does with a page: wanted samples, joined by rank."""
    answer = Answer("prefill-0", Fact.METRICS, "GET /metrics", 0.0, datetime.now(UTC), 0.0, 200, body=body)
    if isinstance(facts.read(answer, ENGINE).got, Missed):
        raise SystemExit("the page could not be read")


def wanted_by_pdctl(body: bytes) -> Values:
    page = read_page(body, frozenset(names.ENGINE_WANTED))
    return {
        name: [(tuple(sorted(labels.items())), repr(v)) for labels, v in rows] for name, rows in page.samples.items()
    }


def wanted_by_prometheus_client(body: bytes) -> Values:
    found: Values = {}
    for family in text_string_to_metric_families(body.decode()):
        for s in family.samples:
            if s.name.encode() in names.ENGINE_WANTED:
                found.setdefault(s.name, []).append((tuple(sorted(s.labels.items())), repr(float(s.value))))
    return found


def parse_all(body: bytes) -> None:
    for _ in text_string_to_metric_families(body.decode()):
        pass


def cpu_of(work: Callable[[bytes], None], body: bytes) -> float:
    before = time.process_time()
    work(body)
    return time.process_time() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two rounds only, to see that it works")
    rounds = 2 if parser.parse_args().small else 15
    recorded = gzip.decompress(RECORDED.read_bytes())
    print(f"{'what':<34} {'CPU':>10} {'baseline':>10} {'ratio':>7}  target   (median of {rounds}; prometheus_client)")
    for label, size in SIZES:
        body = grown(recorded, size)
        if wanted_by_pdctl(body) != wanted_by_prometheus_client(body):
            raise SystemExit(f"the values of the page of {label} differ")
        mine, theirs = [], []
        for _ in range(rounds):
            mine.append(cpu_of(read_all, body))
            theirs.append(cpu_of(parse_all, body))
        figure, base = statistics.median(mine), statistics.median(theirs)
        what = f"read a page, {label} ({len(body) / 1000:.0f} kB)"
        print(f"{what:<34} {figure * 1000:>7.2f} ms {base * 1000:>7.2f} ms {base / figure:>6.1f}x  >= {TARGET:g}x")


if __name__ == "__main__":
    main()
