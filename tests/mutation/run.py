"""Makes each fault of faults.py in a copy of the sources and counts those that a test catches.

    python tests/mutation/run.py [--only WORDS] [--json FILE] [--table FILE]

Faults that the JSON file has already are not tried again. Needs what `pip install '.[test,dev]'`
installs. Decisions derived by hand (test_golden) do not count: they would notice any change. Exit
status 1 if a fault got through.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]


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
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
        if not (folder / "tvm_dtr/models").exists():
            (folder / "tvm_dtr/models").symlink_to("../models")
        options = ["-DTVM_DTR_TESTS=ON", "-DTVM_DTR_PYTHON=OFF", "-DTVM_DTR_CHECKS=ON"]
        self._configure("core", *options)
        self._configure("python", f"-DPython_EXECUTABLE={sys.executable}", "-DTVM_DTR_CHECKS=ON")
        for build in ("core", "python"):
            if not self.build(build):
                raise SystemExit("error: the sources do not build without a fault")

    def _configure(self, build: str, *options: str) -> None:
        command = ["cmake", "-S", ".", "-B", build, "-G", "Ninja", *options]
        subprocess.run(
            [*command, "-DCMAKE_BUILD_TYPE=RelWithDebInfo"],
            cwd=self.folder,
            check=True,
            capture_output=True,
        )

    def build(self, build: str) -> bool:
        """Whether it compiles."""
        done = subprocess.run(["ninja", "-C", build], cwd=self.folder, capture_output=True)
        if build == "python" and done.returncode == 0:
            self.stale = False
            for module in (self.folder / build).glob("*.so"):
                shutil.copy2(module, self.folder / "tvm_dtr")
        return done.returncode == 0

    def core_tests(self) -> str:
        """The first of the core's tests that failed; empty if none did."""
        command = ["ctest", "--test-dir", "core", "-E", "golden", "-LE", "gpu"]
        command += ["--timeout", "300", "--stop-on-failure"]
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
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", *existing],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
        )
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="faults whose description has these words")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path, help="Markdown of what was found")
    options = parser.parse_args()
    rows: list[dict[str, str]] = []
    if options.json and options.json.exists():
        rows = json.loads(options.json.read_text())["rows"]
    done = {row["fault"] for row in rows}
    chosen = [f for f in FAULTS if (not options.only or options.only in f.what)]
    chosen = [f for f in chosen if f.what not in done]
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder)) if chosen else None
        for fault in chosen:
            assert copy is not None
            caught = try_fault(copy, fault)
            rows.append({"fault": fault.what, "file": fault.file, "caught_by": caught})
            print(f"| {fault.what} | {fault.file} | {caught or '**nothing**'} |", flush=True)
            if options.json:
                options.json.write_text(json.dumps({"rows": rows}, indent=1))
    missed = [row for row in rows if not row["caught_by"]]
    print(f"{len(rows) - len(missed)} of {len(rows)} faults were caught")
    if options.table:
        options.table.write_text(table(rows))
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
