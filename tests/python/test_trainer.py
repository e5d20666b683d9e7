"""The training loop: records, resuming bit by bit, stopping, callbacks."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import training_run
from training_run import same_bits, trainer

import tvm_dtr
import tvm_dtr.checkpoint
from tvm_dtr import models
from tvm_dtr.errors import BudgetError, CheckpointError, UsageError
from tvm_dtr.learning_rates import Cosine

KILLS = 4  # benchmarks/kill_and_resume.py does many


@pytest.fixture(scope="module")
def built():
    return training_run.program()


@pytest.fixture(scope="module")
def whole(built):
    """State after 15 steps without a break."""
    run = trainer(built, schedule=Cosine(0.02, 15))
    run.run()
    return dict(run.vm.parameters)


class StopAt(tvm_dtr.Callback):
    def __init__(self, step):
        self.step = step

    def on_step(self, trainer, record, outputs):
        if record["step"] == self.step:
            trainer.stop()


@pytest.mark.parametrize("step", [1, 5, 7, 14])
def test_a_resumed_run_is_the_uninterrupted_one(built, whole, tmp_path, step):
    stopped = trainer(built, tmp_path, schedule=Cosine(0.02, 15), callbacks=[StopAt(step)])
    assert stopped.run()["stopped"] and stopped.position.step == step
    resumed = trainer(built, tmp_path, schedule=Cosine(0.02, 15))
    assert not resumed.run(resume=True)["stopped"]
    assert resumed.position.step == 15
    same_bits(dict(resumed.vm.parameters), whole)


def test_records_go_to_a_file_that_a_resumed_run_continues(built, tmp_path):
    def lines():
        return [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]

    options = {"metrics": tmp_path / "m.jsonl", "checkpoint_every": 4}
    trainer(built, tmp_path / "all", **options).run()
    wanted = lines()
    assert [r["step"] for r in wanted if r["event"] == "step"] == list(range(1, 16))
    assert [(r["epoch"], r["step"]) for r in wanted if r["event"] == "epoch"] == [
        (1, 5),
        (2, 10),
        (3, 15),
    ]
    assert np.isclose(wanted[5]["loss"], np.mean([r["loss"] for r in wanted[:5]]))
    (tmp_path / "m.jsonl").unlink()
    trainer(built, tmp_path / "ck", callbacks=[StopAt(9)], **options).run()
    (tmp_path / "ck" / "step-000000009.ckpt").unlink()  # as if it had died after 9, saved at 8
    with (tmp_path / "m.jsonl").open("a") as stream:
        stream.write('{"event": "st')
    trainer(built, tmp_path / "ck", **options).run(resume=True)
    timed = {"step_seconds", "compute_seconds", "remat_seconds", "search_seconds"}
    timed |= {"samples_per_second", "slowdown"}
    strip = [{k: v for k, v in r.items() if k not in timed} for r in lines()]
    assert strip == [{k: v for k, v in r.items() if k not in timed} for r in wanted]


def test_callbacks_and_evaluation(built):
    seen = []

    class Log(tvm_dtr.Callback):
        def on_start(self, trainer):
            seen.append("start")

        def on_step(self, trainer, record, outputs):
            seen.append((record["step"], outputs["y"].shape))

        def on_epoch(self, trainer, record):
            seen.append(record["accuracy"])

        def on_end(self, trainer):
            seen.append("end")

    run = trainer(
        built, epochs=1, callbacks=[Log()], evaluate=lambda vm: {"accuracy": np.float32(0.5)}
    )
    run.run()
    assert seen == ["start", *[(i, (4, 3)) for i in range(1, 6)], 0.5, "end"]
    assert run.total_steps == 5


def test_a_figure_of_the_evaluation_never_takes_the_place_of_one_of_the_training(built):
    run = trainer(built, epochs=1, evaluate=lambda vm: {"loss": 7.0, "accuracy": 0.5})
    run.run()
    assert (run.last_epoch["validation_loss"], run.last_epoch["accuracy"]) == (7.0, 0.5)
    assert run.last_epoch["loss"] < 5


def test_steps_bound_the_run_and_rates_follow_the_schedule(built):
    rates = []

    class Rates(tvm_dtr.Callback):
        def on_step(self, trainer, record, outputs):
            rates.append(record["lr"])

    run = trainer(
        built, epochs=None, steps=7, schedule=lambda step: 0.1 / (step + 1), callbacks=[Rates()]
    )
    run.run()
    assert rates == [0.1 / (i + 1) for i in range(7)] and run.position.epoch == 1
    assert run.position.batch == 2


def test_an_earlier_run_is_not_overwritten(built, tmp_path):
    trainer(built, tmp_path, epochs=1).run()
    with pytest.raises(UsageError, match="holds checkpoints of an earlier run"):
        trainer(built, tmp_path, epochs=1).run()
    with pytest.raises(CheckpointError, match="shuffle True then, False now"):
        trainer(built, tmp_path, epochs=1, shuffle=False).run(resume=True)
    with pytest.raises(UsageError, match="say where the checkpoints are"):
        trainer(built).run(resume=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs 0"),
        ({"epochs": None}, "say when to stop"),
        ({"steps": True}, "steps True"),
        ({"schedule": "cosine"}, "schedule 'cosine'"),
        ({"metrics": "/nowhere/m.jsonl"}, "name a file in a folder"),
    ],
)
def test_wrong_arguments(built, options, message):
    with pytest.raises(UsageError, match=message):
        trainer(built, **options)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_and_saves(built, tmp_path, number):
    class Interrupt(tvm_dtr.Callback):
        def on_step(self, trainer, record, outputs):
            if record["step"] == 3:
                os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    run = trainer(built, tmp_path, callbacks=[Interrupt()])
    assert run.run()["stopped"] and run.position.step == 3
    assert run.stop_signal == number  # what the exit status tells
    assert signal.getsignal(number) is before
    assert [p.name for p in run.folder.checkpoints()] == ["step-000000003.ckpt"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_is_ignored_stays_ignored(built, number):
    class Interrupt(tvm_dtr.Callback):
        def on_step(self, trainer, record, outputs):
            os.kill(os.getpid(), number)

    before = signal.signal(number, signal.SIG_IGN)
    try:
        run = trainer(built, callbacks=[Interrupt()])
        assert not run.run()["stopped"] and run.stop_signal is None
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_killed_at_random_moments(built, tmp_path):
    built.save(tmp_path / "p.tdtr")
    command = [
        sys.executable,
        training_run.__file__,
        str(tmp_path / "p.tdtr"),
        str(tmp_path / "ck"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    rng = random.Random(3)
    for _ in range(KILLS):
        process = subprocess.Popen(command, env=environment)
        newest = -1
        while process.poll() is None and newest < 1:  # until it has saved once more
            found = len(list(Path(tmp_path / "ck").glob("step-*.ckpt")))
            newest = found if found else -1
            time.sleep(0.02)
        time.sleep(rng.random() * 0.3)
        process.kill()
        process.wait()
    subprocess.run(command, env=environment, check=True)
    reference = trainer(built, epochs=40)
    reference.run()
    last = tvm_dtr.checkpoint.read_checkpoint(tmp_path / "ck" / "step-000000200.ckpt")
    same_bits(last.state, dict(reference.vm.parameters))


def test_resumes_within_the_budget_that_it_was_trained_with(tmp_path):
    """Parameters are nearly all of the peak: old and new ones do not fit side by side."""
    built = tvm_dtr.build(
        models.make("mlp2", batch=4), loss="cross_entropy", optimizer=tvm_dtr.SGD(lr=0.01)
    )
    x = np.random.default_rng(0).normal(size=(8, 784)).astype("float32")
    data = {"x": x, "labels": np.arange(8)}

    def run(steps, **options):
        vm = tvm_dtr.VirtualMachine(built, memory_budget="100%")
        made = tvm_dtr.Trainer(vm, data, checkpoint_dir=tmp_path, steps=steps, seed=1)
        made.run(**options)
        return vm.parameters

    peak = built.unbudgeted_peak_bytes
    with pytest.raises(BudgetError) as refused:
        tvm_dtr.VirtualMachine(built, memory_budget=peak - 8192)
    assert peak - 8192 < refused.value.needed_budget_bytes <= peak
    run(2)
    resumed = dict(run(4, resume=True))
    whole = tvm_dtr.VirtualMachine(built)
    tvm_dtr.Trainer(whole, data, steps=4, seed=1).run()
    same_bits(resumed, dict(whole.parameters))
