"""How much starting pdctl costs: CPU seconds of a few command lines beside an empty Python, in the same run.

usage: python tests/bench/bench_startup.py [--small]

Rounds are interleaved and the median of each is taken, because machines that run benchmarks are rarely idle.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence

BASE = ("python -c pass", (sys.executable, "-c", "pass"))
CASES: tuple[tuple[str, tuple[str, ...], float], ...] = (
    ("pdctl --version", ("--version",), 3.0),
    ("pdctl --help", ("--help",), 8.0),
    ("pdctl pinned --help", ("pinned", "--help"), 8.0),
    ("pdctl triage --help", ("triage", "--help"), 8.0),
    ("pdctl findings", ("findings",), 8.0),
)
PDCTL = (sys.executable, "-c", "import sys; from pdctl.cli import main; sys.exit(main())")


def cpu_of(command: Sequence[str]) -> float:
    """User and system seconds that one run of a command takes. Raises CalledProcessError when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime)


def measured(rounds: int) -> dict[str, float]:
    """Median CPU seconds of the empty Python and of each case."""
    commands = dict([BASE]) | {name: (*PDCTL, *words) for name, words, _ in CASES}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            taken[name].append(cpu_of(command))
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="two rounds only, to see that it works")
    rounds = 2 if parser.parse_args().small else 15
    medians = measured(rounds)
    base = medians[BASE[0]]
    print(f"{'what':<30} {'CPU':>9} {'baseline':>9} {'ratio':>6}  target   (median of {rounds}; baseline: {BASE[0]})")
    for name, _, target in CASES:
        ratio = medians[name] / base
        print(f"{name:<30} {medians[name] * 1000:>6.1f} ms {base * 1000:>6.1f} ms {ratio:>6.2f}  <= {target:g}x")


if __name__ == "__main__":
    main()
