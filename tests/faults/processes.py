"""Faults of a process: signals at random moments, clocks that stand still or jump."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import onnx
import steps
from outcome import Outcome

import tvm_dtr
from tvm_dtr.checkpoint import (
    Checkpoint,
    Position,
    program_identity,
    read_checkpoint,
    write_checkpoint,
)
from tvm_dtr.errors import DTRError
from tvm_dtr.trace import read_events

TRIES = 3
STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}
CLOCKS = ("still", "forward", "backward")


def clocks(folder: Path) -> Iterator[Outcome]:
    """The clock of every call in the process, Python's and the runtime's, is replaced."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return
    library = folder / "clock.so"
    source = Path(__file__).with_name("clock.c")
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    for clock in CLOCKS:
        environment = {**os.environ, "LD_PRELOAD": str(library), "TEST_CLOCK": clock}
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("clock_run.py"))],
            env=environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stderr
        yield Outcome(
            f"a clock that {'stands' if clock == 'still' else 'jumps'} {clock}",
            "measured costs, every policy",
            int(done.stdout),
            "nothing",
            steps.BITWISE,
        )


def signals(folder: Path) -> Iterator[Outcome]:
    """Each command is stopped at moments from its start to its end."""
    model, program = folder / "m.onnx", folder / "p.tdtr"
    onnx.save_model(steps.mlp(batch=8, seed=0, features=6, width=8, hidden_layers=1), str(model))
    tvm_dtr.build(str(model), loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.1)).save(program)
    trained = folder / "trained.ckpt"
    loaded = tvm_dtr.load(program)
    identity = program_identity(loaded)
    write_checkpoint(trained, Checkpoint(dict(loaded.initial_state), Position(), identity))
    commands = {
        "build": f"build {model} -o out.tdtr",
        "run --trace": f"run {program} --memory-budget none --steps 100000 --trace out.dtrace "
        "--json out.json",
        "train": f"train {program} --epochs 1000 --checkpoint-dir checkpoints --checkpoint-every 5",
        "export": f"export {program} --checkpoint {trained} -o out.onnx --json out.json",
    }
    rng = random.Random(0)
    for place, command in commands.items():
        for number in STATUS:
            _stop_at_work(folder / f"{place}-{number}", command.split(), number, rng)
            yield Outcome(
                signal.Signals(number).name,
                f"`{place}`, at random moments",
                TRIES,
                f"exit status {STATUS[number]}, no traceback",
                "no process is left",
                "each whole or not there; no draft",
            )


def _stop_at_work(
    folder: Path, command: list[str], number: signal.Signals, rng: random.Random
) -> None:
    """Stops the command TRIES times; ends of its own before the signal do not count."""
    folder.mkdir()
    stopped, latest = 0, 6.0
    for attempt in range(10 * TRIES):
        status = _stop(folder / str(attempt), command, number, rng.uniform(0.3, latest))
        stopped += status == STATUS[number]
        if stopped == TRIES:
            return
        if status == 0:
            latest = max(0.8 * latest, 0.5)
    raise AssertionError(f"{command} was stopped {stopped} times of {TRIES}")


def _stop(folder: Path, command: list[str], number: signal.Signals, after: float) -> int:
    """Sends the signal after so many seconds; the exit status."""
    folder.mkdir()
    run = subprocess.Popen(
        [sys.executable, "-m", "tvm_dtr.cli", *command],
        cwd=folder,
        env={**os.environ, "TVM_DTR_CACHE_DIR": "none"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background has it ignored, and so have its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    time.sleep(after)
    run.send_signal(number)
    _, message = run.communicate(timeout=300)
    # Before main() is reached Python's own ending is all there is.
    assert run.returncode in (STATUS[number], 0, 1, -number), (run.returncode, message)
    if run.returncode == STATUS[number]:
        assert "Traceback" not in message, message
    check_files(folder)
    return run.returncode


def check_files(folder: Path) -> None:
    """Whatever is there is whole, and nothing else is."""
    for path in folder.rglob("*"):
        if path.is_dir():
            continue
        lock = path.name == ".lock"  # of a folder of checkpoints: it is there to stay
        assert lock or not path.name.startswith("."), f"a draft was left: {path.name}"
        if path.suffix == ".tdtr":
            tvm_dtr.load(path)
        elif path.suffix == ".ckpt":
            read_checkpoint(path)
        elif path.suffix == ".onnx":
            onnx.checker.check_model(str(path))
        elif path.suffix == ".dtrace" and path.stat().st_size:
            try:
                read_events(path)
            except DTRError as error:
                raise AssertionError(f"{path}: {error}") from error
