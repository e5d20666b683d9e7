"""Makes each fault of faults.py in a copy of the sources and counts those that a test catches.

    python tests/mutation/run.py [--only WORDS] [--seconds N] [--json FILE]
        [--folder FOLDER] [--page]

Faults that the JSON file has already are not tried again, and with --folder the copy stays for the
next call. Needs what `pip install '.[test,dev]'` installs. Decisions derived by hand (test_golden)
and numbers from files (PyTorch's) do not count: they would notice any change. Exit status 1 if a
fault got through.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "robustness.md"
GOLDEN = ("-k", "not pytorch")  # tests that compare with files of numbers
A_TEST_SECONDS = 120  # a fault may also make a test go on for ever


class Copy:
    """A copy of the sources with the core's tests and the Python modules built in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stale = True  # the Python modules are not of the sources
        names = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout.split()
        for name in names:
            if not (ROOT / name).is_file():
                continue
            self._bring(name)
        if not (folder / "tvm_dtr/models").exists():
            (folder / "tvm_dtr/models").symlink_to("../models")
        options = ["-DTVM_DTR_TESTS=ON", "-DTVM_DTR_PYTHON=OFF", "-DTVM_DTR_CHECKS=ON"]
        self._configure("core", *options)
        self._configure("python", f"-DPython_EXECUTABLE={sys.executable}", "-DTVM_DTR_CHECKS=ON")
        for build in ("core", "python"):
            if not self.build(build):
                raise SystemExit("error: the sources do not build without a fault")

    def _bring(self, name: str) -> None:
        """Copies a file that is not there as it is; the others stay as old as what they built."""
        there = self.folder / name
        content = (ROOT / name).read_bytes()
        if there.is_file() and there.read_bytes() == content:
            return
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(content)

    def _configure(self, build: str, *options: str) -> None:
        command = ["cmake", "-S", ".", "-B", build, "-G", "Ninja", *options]
        subprocess.run(
            [*command, "-DCMAKE_BUILD_TYPE=RelWithDebInfo"],
            cwd=self.folder,
            check=True,
            capture_output=True,
        )

    def build(self, build: str, *targets: str) -> bool:
        """Whether it compiles."""
        command = ["ninja", "-C", build, *targets]
        done = subprocess.run(command, cwd=self.folder, capture_output=True)
        if build == "python" and done.returncode == 0:
            self.stale = False
            for module in (self.folder / build).glob("*.so"):
                fresh = self.folder / "tvm_dtr" / f"{module.name}.new"
                shutil.copy2(module, fresh)
                fresh.rename(fresh.with_suffix(""))
        return done.returncode == 0

    def core_tests(self, *names: str) -> str:
        """The first of the core's tests, or of those named, that failed; empty if none did."""
        command = ["ctest", "--test-dir", "core", "-E", "golden", "-LE", "gpu"]
        command += ["--timeout", str(A_TEST_SECONDS), "--stop-on-failure"]
        if names:
            command += ["-R", f"^({'|'.join(names)})$"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        failed = [line.split()[3] for line in done.stdout.splitlines() if "***" in line]
        return ", ".join(failed)

    def python_tests(self, names: tuple[str, ...]) -> str:
        """The first Python test that failed, or empty."""
        if self.stale:
            self.build("python")
        existing = [
            f"tests/python/{n}" for n in names if (self.folder / "tests/python" / n).exists()
        ]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", *GOLDEN, *existing],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": str(self.folder)},
                capture_output=True,
                text=True,
                timeout=A_TEST_SECONDS * len(existing),
            )
        except subprocess.TimeoutExpired:
            return f"{existing[0].split('/')[-1]}, which does not end"
        if done.returncode == 0:
            return ""
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0].split(" - ")[0].split("/")[-1] if failed else "the process ended"


def try_fault(copy: Copy, fault: Fault) -> str:
    """Which test catches the fault; empty if none does."""
    path = copy.folder / fault.file
    source = path.read_text()
    if source.count(fault.before) != 1:
        raise SystemExit(f"error: {fault.file} has not exactly one place for: {fault.what}")
    path.write_text(source.replace(fault.before, fault.after))
    try:
        if fault.file.startswith("src/core/"):
            if fault.core and not copy.build("core", *fault.core):
                raise SystemExit(f"error: does not compile: {fault.what}")
            if fault.core and (caught := copy.core_tests(*fault.core)):
                return caught
            if not copy.build("core"):
                raise SystemExit(f"error: does not compile: {fault.what}")
            if caught := copy.core_tests():
                return caught
        # Also what an earlier fault, caught by the core's tests, has left as it was before it.
        if fault.file.startswith("src/") and not copy.build("python"):
            raise SystemExit(f"error: does not compile: {fault.what}")
        return copy.python_tests(fault.tests)
    finally:
        path.write_text(source)
        if fault.file.startswith("src/"):
            copy.stale = True


def table(rows: list[dict[str, str]]) -> str:
    """Markdown."""
    lines = ["| fault | in | caught by |", "| --- | --- | --- |"]
    lines += [f"| {r['fault']} | {r['file']} | {r['caught_by'] or '**nothing**'} |" for r in rows]
    return "\n".join(lines) + "\n"


def write_page(rows: list[dict[str, str]]) -> None:
    """The table of the page in docs/ anew."""
    begin, end = "<!-- faults made by hand -->\n", "<!-- end of faults made by hand -->"
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    assert rest, f"{PAGE} has no place for the table"
    PAGE.write_text(head + begin + table(rows) + end + rest.partition(end)[2], encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="faults whose description has these words")
    parser.add_argument("--seconds", type=float, help="begin no fault after so many")
    parser.add_argument("--json", type=Path, help="what was found, this and earlier times")
    parser.add_argument("--folder", type=Path, help="where the copy is, from now on")
    parser.add_argument("--page", action="store_true", help="write the table into docs/")
    return parser.parse_args()


def main() -> int:
    options = _options()
    rows: list[dict[str, str]] = []
    if options.json and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    done = {row["fault"] for row in rows}
    chosen = [f for f in FAULTS if (not options.only or options.only in f.what)]
    chosen = [f for f in chosen if f.what not in done]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(options.folder or Path(folder)) if chosen else None
        for fault in chosen:
            if options.seconds and time.monotonic() - began > options.seconds:
                break
            assert copy is not None
            caught = try_fault(copy, fault)
            rows.append({"fault": fault.what, "file": fault.file, "caught_by": caught})
            print(f"| {fault.what} | {fault.file} | {caught or '**nothing**'} |", flush=True)
            if options.json:
                options.json.write_text(json.dumps({"rows": rows}, indent=1))
    missed = [row for row in rows if not row["caught_by"]]
    print(f"{len(rows) - len(missed)} of {len(rows)} faults were caught")
    if options.page:
        write_page(rows)
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
