"""Feeds changed inputs to what reads files and texts from outside.

    python tests/fuzz/run.py TARGET [--seconds 1800] [--runs N] [--seed 0] [--state FOLDER]

With atheris (`pip install '.[fuzz]'`) inputs are chosen by the lines that they reach, else by
chance. An input that raises anything but a DTRError, takes over 10 seconds of CPU time or more
memory than 4 GiB beyond what the imports take is written to FOLDER/crash-* and ends the run with
a status other than 0. FOLDER/corpus has the inputs that are worth keeping, for the next run too;
FOLDER/last-TARGET is the last input (8 bytes of length before it).
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import mmap
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

SECONDS_AN_INPUT = 10
MEMORY_BYTES = 4 << 30


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--runs", type=int, default=10**12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, default=Path("fuzz-state"))
    parser.add_argument("--keep-going", action="store_true", help="one input of each defect")
    parser.add_argument("--blind", action="store_true", help="by chance, without atheris")
    return parser.parse_args()


def _limit_memory() -> None:
    """Address space: what is mapped now and MEMORY_BYTES more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


class TooSlow(BaseException):
    """An input took longer than SECONDS_AN_INPUT."""


@contextlib.contextmanager
def _in_time() -> Any:
    def stop(*_: Any) -> None:
        raise TooSlow(f"over {SECONDS_AN_INPUT} s")

    signal.signal(signal.SIGPROF, stop)  # CPU time: the machine may be busy
    signal.setitimer(signal.ITIMER_PROF, SECONDS_AN_INPUT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


class Last:
    """The input at hand, in a file that outlives the process, at the cost of a copy."""

    def __init__(self, path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(1 << 20)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 1 << 20)

    def write(self, data: bytes) -> None:
        self._map[: 8 + len(data)] = len(data).to_bytes(8, "little") + data


class Run:
    """Counts inputs, and keeps the one that is not borne."""

    def __init__(self, target: Any, options: argparse.Namespace) -> None:
        self.target, self.options = target, options
        self.inputs = self.accepted = 0
        self.found: set[str] = set()
        self.began = time.monotonic()
        options.state.mkdir(parents=True, exist_ok=True)
        self.last = Last(options.state / f"last-{target.name}")

    def one(self, data: bytes) -> None:
        self.inputs += 1
        self.last.write(data)  # what a crash of the process leaves
        try:
            with _in_time():
                self.accepted += self.target(data)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            if self._known(error):
                return
            traceback.print_exc()
            name = f"crash-{self.target.name}-{hashlib.sha256(data).hexdigest()[:12]}"
            path = self.options.state / name
            path.write_bytes(data)
            if self.options.keep_going:
                return
            self.report()
            print(f"error: {type(error).__name__}: the input is in {path}")
            raise SystemExit(1) from error

    def _known(self, error: BaseException) -> bool:
        """Whether one like it was found before (with --keep-going)."""
        frames = traceback.extract_tb(error.__traceback__)
        ours = [f"{f.filename}:{f.lineno}" for f in frames if "tvm_dtr" in f.filename]
        key = f"{type(error).__name__} {ours[-1:]}"
        known = key in self.found
        self.found.add(key)
        return known

    def over(self) -> bool:
        late = time.monotonic() - self.began > self.options.seconds
        return late or self.inputs >= self.options.runs

    def report(self) -> None:
        seconds = time.monotonic() - self.began
        print(
            f"{self.target.name}: {self.inputs} inputs, {self.accepted} of them accepted, "
            f"in {seconds:.0f} s",
            flush=True,
        )


def _by_chance(run: Run) -> None:
    rng = random.Random(run.options.seed)
    corpus = run.target.corpus()
    for data in corpus:
        run.one(data)
    while not run.over():
        data = rng.choice(corpus)
        for _ in range(rng.choice((1, 1, 2, 3))):
            data = run.target.mutate(data, rng)
        run.one(data)


def _by_coverage(run: Run, atheris: Any, corpus: str) -> None:
    kept = run.options.state / "corpus"
    kept.mkdir(exist_ok=True)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        return run.target.mutate(data, random.Random(seed))[:most]

    arguments = [
        sys.argv[0],
        f"-max_total_time={int(run.options.seconds)}",
        f"-seed={run.options.seed + 1}",
        "-max_len=65536",
        "-rss_limit_mb=0",  # RLIMIT_AS it is
        f"-artifact_prefix={run.options.state}/",
        str(kept),
        corpus,
    ]
    if run.options.runs < 10**12:
        arguments.append(f"-atheris_runs={run.options.runs}")
    atheris.Setup(arguments, run.one, custom_mutator=mutate)
    atheris.Fuzz()


def main() -> int:
    options = _parse()
    faulthandler.enable()
    try:
        import atheris
    except ImportError:
        atheris = None
    guided = atheris is not None and not options.blind
    with atheris.instrument_imports(include=["tvm_dtr"]) if guided else contextlib.nullcontext():
        from targets import CORPUS, TARGETS
    if options.target not in TARGETS:
        print(f"error: unknown target '{options.target}': use one of {', '.join(TARGETS)}")
        return 2
    run = Run(TARGETS[options.target], options)
    run.target(run.target.corpus()[0])  # what is made on first use
    _limit_memory()
    print(f"{options.target}: {'by coverage (atheris)' if guided else 'by chance'}", flush=True)
    if not guided:
        _by_chance(run)
        run.report()
        return 0
    import atexit

    atexit.register(run.report)
    _by_coverage(run, atheris, str(CORPUS / options.target))
    return 0


if __name__ == "__main__":
    sys.exit(main())
