"""A training loop over ``vm.step``: epochs, learning rates, checkpoints, metrics, callbacks."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .checkpoint import (
    Checkpoint,
    CheckpointFolder,
    Position,
    check_program,
    program_identity,
    read_checkpoint,
)
from .data import Batches, open_data, prefetched
from .errors import CheckpointError, DivergedError, InputError, UsageError
from .learning_rates import Constant, Schedule
from .optim import LEARNING_RATE
from .training_metrics import MetricsFile

StepRecord = dict[str, Any]


class Callback:
    """What a Trainer calls as it goes; every method may be left as it is.

    Records are dicts ready for JSON: of a step ``event`` ("step"), ``step`` (from 1 on), ``epoch``
    (from 1 on), ``loss``, ``lr``, ``samples_per_second``, ``slowdown`` and the fields of
    ``vm.stats``; of an epoch, ``event`` ("epoch"), ``step``, ``epoch``, ``loss`` (mean of its
    steps) and what the evaluation gave. To stop, call ``trainer.stop()``.
    """

    def on_start(self, trainer: Trainer) -> None: ...

    def on_step(self, trainer: Trainer, record: StepRecord, outputs: Mapping[str, Any]) -> None: ...

    def on_epoch(self, trainer: Trainer, record: StepRecord) -> None: ...

    def on_checkpoint(self, trainer: Trainer, path: str) -> None: ...

    def on_end(self, trainer: Trainer) -> None: ...


class Trainer:
    """Trains a program's virtual machine on data.

    Args:
        vm: a ``tvm_dtr.VirtualMachine`` on a Program.
        data: see :func:`tvm_dtr.data.open_data`; None is made-up data.
        epochs: how often to go through the data, None for as often as ``steps`` takes; ``steps``:
            stop after this many steps in all.
        schedule: learning rate by the update's index (tvm_dtr.learning_rates), or a number; by
            default the program's own rate. A program that accumulates gradients updates every
            ``program.accumulate`` steps.
        shuffle, seed, drop_last: of array data, see ArrayBatches.
        prefetch: batches made ahead in another thread, 0 for none.
        evaluate: called as ``evaluate(vm)`` after each epoch; returns a dict of figures.
        checkpoint_dir: where to keep checkpoints, the last ``keep`` of them; one is written every
            ``checkpoint_every`` steps (None: after each epoch), when the run stops and at its end.
        metrics: a file that takes a line of JSON per record.
        stop_on_nan: raise DivergedError at the first step whose loss is infinite or NaN, with the
            checkpoints before it kept as they are; else the run warns once and goes on.
        callbacks: Callback objects, called in order.

    Raises:
        UsageError: wrong arguments. InputError: data that does not fit the program.
    """

    def __init__(
        self,
        vm: Any,
        data: Any = None,
        *,
        epochs: int | None = 1,
        steps: int | None = None,
        schedule: Schedule | float | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        prefetch: int = 2,
        evaluate: Callable[[Any], Mapping[str, Any]] | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_every: int | None = None,
        keep: int = 3,
        metrics: str | os.PathLike[str] | None = None,
        stop_on_nan: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.vm = vm
        self.program = vm.program
        specs = self.program.inputs
        options: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
        self.data: Batches = open_data(data, specs, **options)
        self.epochs, self.steps = _count("epochs", epochs), _count("steps", steps)
        if self.epochs is None and self.steps is None:
            raise UsageError("say when to stop: epochs or steps")
        self.schedule = _schedule(schedule, [spec.name for spec in specs])
        self.prefetch, self.evaluate = prefetch, evaluate
        self.folder = None if checkpoint_dir is None else CheckpointFolder(checkpoint_dir, keep)
        self.checkpoint_every = _count("checkpoint_every", checkpoint_every)
        self.metrics = None if metrics is None else MetricsFile(metrics)
        self.stop_on_nan, self._has_diverged = stop_on_nan, False
        self.callbacks = list(callbacks)
        self.position = Position(data=self.data.identity())
        #: Whether the latest run ended before its end: stop() or a signal.
        self.stopped = False
        #: The signal that stopped the run, if one did.
        self.stop_signal: int | None = None
        #: The latest record of a step, and of an epoch.
        self.last_step: StepRecord = {}
        self.last_epoch: StepRecord = {}
        self._saved_step = -1

    @property
    def total_steps(self) -> int | None:
        """Steps of the whole run, None where the data does not say."""
        per_epoch = self.data.per_epoch
        whole = None if per_epoch is None or self.epochs is None else per_epoch * self.epochs
        return self.steps if whole is None else min(whole, self.steps or whole)

    @property
    def total_updates(self) -> int | None:
        """Updates of the whole run, which is what schedules count."""
        steps = self.total_steps
        return None if steps is None else max(steps // self.program.accumulate, 1)

    def stop(self) -> None:
        """Ends the run after the current step; the state is saved as at the end of a run."""
        self.stopped = True

    # -- Running -----------------------------------------------------------------------------------

    def run(self, resume: bool | str | os.PathLike[str] = False) -> dict[str, Any]:
        """Trains to the end; Ctrl-C (once) stops after the step, saves and returns.

        ``resume``: goes on from the newest checkpoint of ``checkpoint_dir``, or from the one
        named; from the start where there is none yet. The rest of the run is then, bit by bit,
        that of a run that never stopped. Returns the last record of a step with ``stopped``.

        Raises:
            CheckpointError: the checkpoint is damaged or of another program. UsageError: the
                folder holds checkpoints of an earlier run and ``resume`` is not set.
            DivergedError: see ``stop_on_nan``. InputError, BudgetError, ThrashError: as vm.step.
        """
        self.stopped = False
        with contextlib.ExitStack() as stack:
            if self.folder is not None:
                stack.enter_context(self.folder.locked())
            self._resume(resume)
            if self.metrics is not None:
                self.metrics.start(self.position.step)
                stack.callback(self.metrics.close)
            stack.enter_context(self._stopping_on_signals())
            self._tell("on_start")
            while not self._done():
                self._run_epoch()
            self._save()
            self._tell("on_end")
        return self.last_step | {"stopped": self.stopped}

    def _done(self) -> bool:
        past_steps = self.steps is not None and self.position.step >= self.steps
        past_epochs = self.epochs is not None and self.position.epoch >= self.epochs
        return self.stopped or past_steps or past_epochs

    def _run_epoch(self) -> None:
        position = self.position
        batches = self.data.epoch(position.epoch, position.batch)
        whole = True
        with prefetched(batches, self.prefetch) as ready:
            for batch in ready:
                self._run_step(batch)
                if self._done():
                    whole = position.batch == self.data.per_epoch
                    break
        if position.batch == 0:
            raise UsageError("the data holds no batch: nothing to train on")
        if whole:
            self._end_epoch()

    def _run_step(self, batch: Mapping[str, Any]) -> None:
        position = self.position
        rate = (
            None
            if self.schedule is None
            else float(self.schedule(position.step // self.program.accumulate))
        )
        given = {} if rate is None else {LEARNING_RATE: rate}
        outputs = self._stepped(batch, given)
        position.step += 1
        position.batch += 1
        record = self._record(outputs, rate)
        if "loss" in outputs and not math.isfinite(record["loss"]):
            self._tell_of_divergence(record)
        self.last_step = record
        position.loss_sum += record["loss"]
        if self.metrics is not None:
            self.metrics.write(record)
        for callback in self.callbacks:
            callback.on_step(self, record, outputs)
        every = self.checkpoint_every
        if every is not None and position.step % every == 0:
            self._save()

    def _stepped(self, batch: Mapping[str, Any], given: Mapping[str, float]) -> Mapping[str, Any]:
        try:
            return self.vm.step(**batch, **given)
        except InputError as error:
            position, name = self.position, getattr(self.data, "name", "data")
            where = f"epoch {position.epoch + 1}, batch {position.batch + 1}"
            raise InputError(f"{name}, {where}: {error}") from error

    def _tell_of_divergence(self, record: StepRecord) -> None:
        before = self.last_step.get("loss")
        was = "" if before is None else f" (it was {before:.4g} at the step before)"
        message = (
            f"the loss is {record['loss']} at step {record['step']}{was}: lower the learning rate "
            "(--lr), raise it slowly (--warm-up), clip gradients (--clip-norm 1), and look for "
            "infinite values in the data"
        )
        if self.stop_on_nan:
            raise DivergedError(message)
        if not self._has_diverged:
            warnings.warn(message, stacklevel=4)
        self._has_diverged = True

    def _record(self, outputs: Mapping[str, Any], rate: float | None) -> StepRecord:
        stats = self.vm.stats
        own = stats["compute_seconds"]
        loss = float(np.asarray(outputs["loss"])) if "loss" in outputs else float("nan")
        return {
            "event": "step",
            "step": self.position.step,
            "epoch": self.position.epoch + 1,
            "lr": rate,
            "samples_per_second": self.data.batch_size / max(stats["step_seconds"], 1e-9),
            "slowdown": (own + stats["remat_seconds"]) / own if own else 1.0,
            **{name: value for name, value in stats.items() if name != "steps"},
            "loss": loss,
        }

    def _end_epoch(self) -> None:
        record: StepRecord = {
            "event": "epoch",
            "step": self.position.step,
            "epoch": self.position.epoch + 1,
            "loss": self.position.loss_sum / max(self.position.batch, 1),
        }
        if self.evaluate is not None:
            for name, value in self.evaluate(self.vm).items():
                record[f"validation_{name}" if name in record else name] = _plain(value)
        self.position.epoch += 1
        self.position.batch = 0
        self.position.loss_sum = 0.0
        self.last_epoch = record
        if self.metrics is not None:
            self.metrics.write(record)
        for callback in self.callbacks:
            callback.on_epoch(self, record)
        if self.checkpoint_every is None:
            self._save()

    def _tell(self, event: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, event)(self, *arguments)

    # -- Checkpoints -------------------------------------------------------------------------------

    def _save(self) -> None:
        if self.folder is None or self.position.step == self._saved_step:
            return
        state = dict(self.vm.parameters)
        path = self.folder.save(Checkpoint(state, self.position, program_identity(self.program)))
        self._saved_step = self.position.step
        self._tell("on_checkpoint", str(path))

    def _resume(self, resume: bool | str | os.PathLike[str]) -> None:
        if resume is False or resume is None:
            if self.folder is not None and self.folder.checkpoints() and not self.position.step:
                raise UsageError(
                    f"checkpoint folder '{self.folder.path}' holds checkpoints of an earlier run: "
                    "resume it (--resume), or name another folder"
                )
            return
        found = self._found(resume)
        if found is None:
            return
        path, checkpoint = found
        identity = self.data.identity()
        if checkpoint.position.data != identity:
            raise CheckpointError(
                f"{path}: made with other data ({_unequal(checkpoint.position.data, identity)}); "
                "give the same data and options, or start anew in another folder"
            )
        self.vm.set_parameters(checkpoint.state)
        self.position = checkpoint.position
        self._saved_step = self.position.step

    def _found(self, resume: bool | str | os.PathLike[str]) -> tuple[Any, Checkpoint] | None:
        if isinstance(resume, bool):
            if self.folder is None:
                raise UsageError("to resume, say where the checkpoints are: checkpoint_dir")
            return self.folder.newest(self.program)
        checkpoint = read_checkpoint(Path(resume))
        check_program(Path(resume), checkpoint, self.program)
        return Path(resume), checkpoint

    @contextlib.contextmanager
    def _stopping_on_signals(self) -> Iterator[None]:
        """The first SIGINT or SIGTERM stops after the step; a second one acts as without us.

        A signal that the process ignores (under nohup, or behind ``&`` in a script) stays ignored.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may set handlers
            return
        previous = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
        previous = {n: old for n, old in previous.items() if old is not signal.SIG_IGN}

        def handler(number: int, *_: Any) -> None:
            self.stop()
            self.stop_signal = number
            for number, old in previous.items():
                signal.signal(number, old)

        for number in previous:
            signal.signal(number, handler)
        try:
            yield
        finally:
            for number, old in previous.items():
                signal.signal(number, old)


def _count(name: str, value: int | None) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise UsageError(f"{name} {value!r}: expected a whole number of 1 or more")
    return value


def _schedule(schedule: Any, inputs: Sequence[str]) -> Schedule | None:
    if schedule is None:
        return None
    if LEARNING_RATE not in inputs:
        raise UsageError(
            "the program was built without an optimizer: it takes no learning rate, and nothing "
            "is trained"
        )
    if callable(schedule):
        return schedule
    if isinstance(schedule, bool) or not isinstance(schedule, int | float):
        raise UsageError(f"schedule {schedule!r}: expected a number or a function of the step")
    return Constant(float(schedule))


def _unequal(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} then, {new.get(name)} now" for name in names)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
