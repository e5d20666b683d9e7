"""Kills a training run with SIGKILL at random moments, each time resumes it, and compares its end
bit by bit with the run that was never interrupted.

    python benchmarks/kill_and_resume.py --kills 200

Writes benchmarks/results/kill_and_resume.json. The moments are spread over the life of the
process: start (as long as it took the uninterrupted run, so that a slow machine gets on too),
steps, the writing of checkpoints. When a run has ended, the next starts anew.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.checkpoint import read_checkpoint

RESULTS = Path(__file__).with_name("results")
STEPS, EVERY, BATCH = 150, 1, 4


def build() -> tvm_dtr.Program:
    return tvm_dtr.build(
        models.make("resnet8", batch=BATCH), loss="cross_entropy", optimizer=tvm_dtr.AdamW()
    )


def run(program_file: str, folder: str) -> None:
    """A run in this process: resumes what is in the folder, writes a checkpoint after each step."""
    vm = tvm_dtr.VirtualMachine(tvm_dtr.load(program_file), memory_budget="80%")
    trainer = tvm_dtr.Trainer(
        vm, None, epochs=None, steps=STEPS, checkpoint_dir=folder, checkpoint_every=EVERY
    )
    trainer.run(resume=True)


def timed_run(command: list[str], folder: Path) -> tuple[float, float]:
    """An uninterrupted run; seconds until its first checkpoint and until its end."""
    start = time.perf_counter()
    process = subprocess.Popen([*command, str(folder)])
    while process.poll() is None and not any(folder.glob("step-*.ckpt")):
        time.sleep(0.01)
    first = time.perf_counter() - start
    if process.wait() != 0:
        raise SystemExit(f"the uninterrupted run ended with status {process.returncode}")
    return first, time.perf_counter() - start


def final_state(folder: Path) -> dict[str, np.ndarray] | None:
    path = folder / f"step-{STEPS:09d}.ckpt"
    return read_checkpoint(path).state if path.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most", type=float, default=2.0, help="of a life, in times of starting")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run(*arguments.run)
        return
    work = Path(tempfile.mkdtemp(prefix="tvm-dtr-kill-"))
    program_file = work / "p.tdtr"
    build().save(program_file)
    command = [sys.executable, __file__, "--run", str(program_file)]
    start_seconds, whole_seconds = timed_run(command, work / "whole")
    wanted = final_state(work / "whole")
    assert wanted is not None
    rng = random.Random(arguments.seed)
    began = time.perf_counter()
    kills = finished = different = during_write = 0
    folder = work / "killed"
    while kills < arguments.kills:
        process = subprocess.Popen([*command, str(folder)])
        time.sleep(rng.random() * arguments.most * start_seconds)
        process.kill()
        status = process.wait()
        if status not in (0, -signal.SIGKILL):
            raise SystemExit(f"a run ended by itself with status {status}")
        kills += status != 0
        during_write += any(folder.glob(".step-*.tmp")) if folder.exists() else 0
        state = final_state(folder) if folder.exists() else None
        if state is not None:
            finished += 1
            different += any(state[n].tobytes() != wanted[n].tobytes() for n in wanted)
            shutil.rmtree(folder)
    process = subprocess.run([*command, str(folder)], check=True)
    state = final_state(folder)
    assert state is not None
    finished += 1
    different += any(state[n].tobytes() != wanted[n].tobytes() for n in wanted)
    row = {
        "kills": kills,
        "during_a_checkpoint": during_write,
        "runs_ended": finished,
        "runs_different": different,
        "steps": STEPS,
        "start_seconds": start_seconds,
        "whole_run_seconds": whole_seconds,
        "seconds": time.perf_counter() - began,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "kill_and_resume.json").write_text(json.dumps({"rows": [row]}, indent=2) + "\n")
    shutil.rmtree(work)
    print(row)
    if different:
        raise SystemExit("a resumed run is not the uninterrupted one")


if __name__ == "__main__":
    main()
