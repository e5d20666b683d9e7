"""Fuzzes all targets in turns, a few minutes each, until each has had its time in all.

    python tests/fuzz/campaign.py --state FOLDER [--cpp FOLDER] [--random] [--seconds 1800]
        [--turn 300] [--stop-after N] [--only NAME,...] [--page]

FOLDER/results.json says how long each target has run, over all calls, in seconds of processor time:
it may run beside other work. The next call goes on there, from the inputs that were found. A target
that an input gets the better of has its input kept in FOLDER/TARGET/ and starts again from nought,
for it is another program once it is mended. Exit status 1 if there was one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "robustness.md"
CPP = ("arena", "program", "runtime")
PYTHON = ("budget", "events", "graph", "log", "manifest", "onnx", "packed_events", "packed_log")
PYTHON += ("program", "schedule")
NAMES = (*(f"fuzz_{name}" for name in CPP), *PYTHON)
# What libFuzzer is told: seconds and memory of an input are those of run.py.
LIMITS = ("-timeout=10", "-rss_limit_mb=4096", "-malloc_limit_mb=2048", "-max_len=4096")


@dataclass
class Progress:
    """Of one target, over all turns since it last failed."""

    seconds: float = 0.0  # of processor time
    inputs: int = 0
    kept: int = 0  # inputs that reach something of their own
    failures: int = 0  # turns that ended early, ever


def load(path: Path) -> dict[str, Progress]:
    """What earlier calls have done; nought for targets that are new."""
    found = json.loads(path.read_text()) if path.exists() else {}
    return {name: Progress(**found.get(name, {})) for name in NAMES}


def save(path: Path, results: dict[str, Progress]) -> None:
    """Replaces the file as a whole."""
    fresh = path.with_suffix(".part")
    fresh.write_text(json.dumps({k: asdict(v) for k, v in results.items()}, indent=1) + "\n")
    os.replace(fresh, path)


def command(name: str, folder: Path, seconds: int, options: argparse.Namespace) -> list[str]:
    """What runs one turn of a target."""
    if name in PYTHON:
        turn = ["--seconds", str(seconds), "--state", str(folder)]
        # Other inputs each time also where chance makes them.
        return [sys.executable, str(HERE / "run.py"), name, *turn, "--seed", str(_seed())]
    binary = str(options.cpp / name)
    if options.random:
        return ["timeout", str(seconds), binary, "--random", str(10**12), str(_seed())]
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={seconds}", *LIMITS]
    return [binary, *limits, f"-artifact_prefix={folder}/", str(corpus)]


def _seed() -> int:
    return int(time.time()) % 2**31


def inputs_in(log: str) -> int:
    """How many inputs a turn tried, by what it printed last."""
    counts = re.findall(r"Done (\d+) runs|: (\d+) inputs,", log)
    return max((int(a or b) for a, b in counts), default=0)


def _children_seconds() -> float:
    """Processor time of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_turn(name: str, progress: Progress, seconds: int, options: argparse.Namespace) -> bool:
    """One turn; whether the target bore all inputs."""
    folder = options.state / name
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "last-turn.log"
    began, used = time.monotonic(), _children_seconds()
    with log.open("wb") as file:
        turn = command(name, folder, seconds, options)
        status = subprocess.run(turn, stdout=file, stderr=subprocess.STDOUT).returncode
    took = time.monotonic() - began
    fine = status == 0 or (options.random and name not in PYTHON and status == 124)
    if not fine:
        progress.seconds, progress.inputs = 0.0, 0
        progress.failures += 1
        print(f"error: {name} ended with status {status} after {took:.0f} s: see {log}")
        return False
    progress.seconds += min(_children_seconds() - used, seconds)
    progress.inputs += inputs_in(log.read_text(errors="replace"))
    corpus = folder / "corpus"
    progress.kept = len(list(corpus.iterdir())) if corpus.is_dir() else 0
    print(f"{name}: {progress.seconds:.0f} s, {progress.inputs} inputs in all", flush=True)
    return True


def table(results: dict[str, Progress], seconds: int) -> str:
    """Markdown."""
    lines = ["| target | seconds | inputs | kept |", "| --- | ---: | ---: | ---: |"]
    for name, p in results.items():
        done = f"{p.seconds:,.0f} of {seconds:,}"
        lines.append(f"| `{name}` | {done} | {p.inputs:,} | {p.kept:,} |")
    return "\n".join(lines) + "\n"


def write_page(results: dict[str, Progress], seconds: int) -> None:
    """The table of the page in docs/ anew."""
    begin, end = "<!-- fuzzing -->\n", "<!-- end of fuzzing -->"
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    assert rest, f"{PAGE} has no place for the table"
    whole = head + begin + table(results, seconds) + end + rest.partition(end)[2]
    PAGE.write_text(whole, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--cpp", type=Path, help="where the C++ targets were built, if they were")
    parser.add_argument("--random", action="store_true", help="they were built without libFuzzer")
    parser.add_argument("--seconds", type=int, default=1800, help="of each target, in all")
    parser.add_argument("--turn", type=int, default=300, help="seconds of a turn, at most")
    parser.add_argument("--stop-after", type=float, help="begin no turn after so many seconds")
    parser.add_argument("--only", help="names, with commas between them")
    parser.add_argument("--page", action="store_true", help="write the table into docs/")
    options = parser.parse_args()
    options.state = options.state.resolve()
    return options


def campaign(options: argparse.Namespace, results: dict[str, Progress]) -> bool:
    """Turns until all have had their time; whether all bore it."""
    names = options.only.split(",") if options.only else list(results)
    if unknown := [name for name in names if name not in results]:
        raise SystemExit(f"error: unknown target '{unknown[0]}': use some of {', '.join(results)}")
    if options.cpp is None:
        names = [name for name in names if name in PYTHON]
    began, fine = time.monotonic(), True
    while left := [n for n in names if results[n].seconds < options.seconds]:
        name = min(left, key=lambda n: results[n].seconds)
        if options.stop_after and time.monotonic() - began > options.stop_after:
            break
        turn = min(options.turn, math.ceil(options.seconds - results[name].seconds))
        if not run_turn(name, results[name], turn, options):
            fine = False
            names.remove(name)
        save(options.state / "results.json", results)
    return fine


def main() -> int:
    options = _options()
    options.state.mkdir(parents=True, exist_ok=True)
    results = load(options.state / "results.json")
    fine = campaign(options, results)
    print(table(results, options.seconds), end="")
    if options.page:
        write_page(results, options.seconds)
    return not fine


if __name__ == "__main__":
    sys.exit(main())
