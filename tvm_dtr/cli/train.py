"""``tvm-dtr train``: trains a program on data under a memory budget."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path
from typing import Any

from tvm_dtr.budget import parse_budget
from tvm_dtr.cli import INTERRUPTED
from tvm_dtr.cli import arguments as args
from tvm_dtr.cli.build import open_program
from tvm_dtr.cli.files import check_outputs, write_rows
from tvm_dtr.cli.optimizer_options import rate
from tvm_dtr.cli.report import mebibytes
from tvm_dtr.errors import UsageError

SCHEDULES = ("constant", "step", "cosine", "one-cycle")


def add_command(commands: Any, everywhere: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "train",
        parents=[everywhere],
        help="train on data under a memory budget, with checkpoints",
        description="Train on data under a memory budget, with checkpoints.",
    )
    parser.add_argument("program", metavar="PROGRAM_OR_ONNX", help="a program or an ONNX file")
    parser.add_argument(
        "--memory-budget",
        default="none",
        metavar="SIZE",
        help="512MiB, 40%% (of the peak without a budget), auto (the smallest whose predicted "
        "slowdown is at most 1.2) or none (default)",
    )
    parser.add_argument(
        "--policy", default="auto", metavar="NAME", help="what to evict first, as of run"
    )
    _add_data_options(parser)
    _add_length_options(parser)
    _add_file_options(parser)
    args.add_build_options(parser)
    args.add_require_sha256(parser)
    parser.set_defaults(command=train_program)


def _add_data_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument(
        "--data",
        metavar="SOURCE",
        help="FILE.npz with an array per input, a folder with NAME.npy per input (read as needed), "
        "or module:function that gives batches (default: made-up data)",
    )
    group.add_argument(
        "--validation",
        metavar="SOURCE",
        help="data of the same kinds to evaluate on after each epoch",
    )
    group.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="of the evaluation: loss, accuracy, perplexity or module:function of (outputs, "
        "inputs) (default: loss; may be given several times)",
    )
    group.add_argument(
        "--shuffle",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="another order of the samples in each epoch, by --seed (default: do)",
    )
    group.add_argument(
        "--keep-last",
        action="store_true",
        help="fill the last batch up from the start of the epoch instead of leaving it out",
    )
    group.add_argument(
        "--prefetch", type=args.whole, default=2, metavar="N", help="batches made ahead (default 2)"
    )
    group.add_argument(
        "--seed",
        type=args.seed,
        default=0,
        metavar="N",
        help="of the order of samples, of made-up data and of dropout (default 0)",
    )


def _add_length_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("length and learning rate")
    group.add_argument("--epochs", type=args.positive, metavar="N", help="default 1")
    group.add_argument("--steps", type=args.positive, metavar="N", help="stop after N steps in all")
    group.add_argument(
        "--schedule",
        choices=SCHEDULES,
        default="constant",
        help="of the learning rate over the run; --lr is its highest (default constant)",
    )
    group.add_argument(
        "--warm-up",
        type=args.positive,
        default=0,
        metavar="STEPS",
        help="first raise the learning rate linearly, from a third",
    )
    group.add_argument(
        "--decay-every",
        type=args.positive,
        default=0,
        metavar="STEPS",
        help="of --schedule step (default: a third of the run)",
    )
    group.add_argument("--decay", type=rate, default=0.1, metavar="X", help="of step (default 0.1)")


def _add_file_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("checkpoints and records")
    group.add_argument("--checkpoint-dir", metavar="DIR", help="where checkpoints go")
    group.add_argument(
        "--checkpoint-every",
        type=args.positive,
        metavar="STEPS",
        help="default: after each epoch; always when the run stops and at its end",
    )
    group.add_argument(
        "--keep",
        type=args.whole,
        default=3,
        metavar="N",
        help="how many checkpoints stay, 0 for all (default 3)",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on from the newest checkpoint in DIR; from the start where there is none",
    )
    group.add_argument("--resume-from", metavar="FILE", help="go on from this checkpoint")
    group.add_argument("--metrics", metavar="FILE", help="a line of JSON per step and epoch")
    group.add_argument(
        "--stop-on-nan",
        action="store_true",
        help="fail at the first step whose loss is infinite or NaN (default: warn once)",
    )


def train_program(arguments: argparse.Namespace) -> int:
    _check(arguments)
    program = open_program(arguments)
    import tvm_dtr
    from tvm_dtr.cli.train_progress import shown_progress

    unlimited = parse_budget(arguments.memory_budget).unlimited
    vm = tvm_dtr.VirtualMachine(
        program,
        memory_budget=None if unlimited else arguments.memory_budget,
        policy=arguments.policy,
    )
    if arguments.seed and "random_key" in vm.parameters:
        key = vm.parameters["random_key"]
        key[0] = arguments.seed % 2**32
        vm.set_parameters({"random_key": key})
    trainer = _trainer(arguments, vm)
    with contextlib.ExitStack() as stack:
        trainer.callbacks.append(stack.enter_context(shown_progress(trainer)))
        last = trainer.run(resume=arguments.resume_from or arguments.resume)
    return _finish(arguments, trainer, last)


def _check(arguments: argparse.Namespace) -> None:
    """Everything that can be refused before the long work."""
    args.check_input(arguments.program)
    check_outputs([arguments.json, arguments.metrics], inputs=[arguments.program])
    args.refuse_build_options(arguments, but=["--lr"])
    if arguments.resume and arguments.checkpoint_dir is None:
        raise UsageError("--resume needs --checkpoint-dir: where the checkpoints are")
    if arguments.metric and arguments.validation is None:
        raise UsageError("--metric needs --validation: the data to evaluate on")
    if arguments.optimizer == "none":
        raise UsageError("--optimizer none trains nothing: choose an optimizer")
    parse_budget(arguments.memory_budget)


def _trainer(arguments: argparse.Namespace, vm: Any) -> Any:
    from tvm_dtr.trainer import Trainer

    trainer = Trainer(
        vm,
        arguments.data,
        epochs=arguments.epochs or (None if arguments.steps else 1),
        steps=arguments.steps,
        shuffle=arguments.shuffle,
        seed=arguments.seed,
        drop_last=not arguments.keep_last,
        prefetch=arguments.prefetch,
        checkpoint_dir=arguments.checkpoint_dir,
        checkpoint_every=arguments.checkpoint_every,
        keep=arguments.keep,
        metrics=arguments.metrics,
        stop_on_nan=arguments.stop_on_nan,
    )
    trainer.schedule = _schedule(arguments, trainer)
    if arguments.validation is not None:
        from tvm_dtr.data.sources import load_function
        from tvm_dtr.evaluation import Evaluator

        names = arguments.metric or ["loss"]
        metrics = [load_function("metric", n) if ":" in n else n for n in names]
        trainer.evaluate = Evaluator(vm.program, arguments.validation, metrics)
    return trainer


def _schedule(arguments: argparse.Namespace, trainer: Any) -> Any:
    from tvm_dtr.learning_rates import make_schedule
    from tvm_dtr.optim import LEARNING_RATE

    rates = [s.default for s in trainer.program.inputs if s.name == LEARNING_RATE]
    if not rates:
        raise UsageError("the program was built without an optimizer: there is nothing to train")
    total = trainer.total_updates
    if total is None and (arguments.schedule != "constant" or arguments.warm_up):
        raise UsageError(
            f"the data does not say how many batches it has: --schedule {arguments.schedule} "
            "needs --steps"
        )
    return make_schedule(
        arguments.schedule,
        rates[0] if arguments.lr is None else arguments.lr,
        total or 1,
        warm_up=arguments.warm_up,
        every=arguments.decay_every,
        gamma=arguments.decay,
    )


def _finish(arguments: argparse.Namespace, trainer: Any, last: dict[str, Any]) -> int:
    folder, stopped = trainer.folder, last.pop("stopped")
    newest = str(folder.checkpoints()[-1]) if folder is not None and folder.checkpoints() else None
    row = {
        "model": Path(arguments.program).stem,
        **{name: value for name, value in last.items() if name != "event"},
        "steps": trainer.position.step,
        "checkpoint": newest,
        "result": "stopped" if stopped else "ok",
    }
    write_rows(arguments.json, [row])
    where = f"; saved {newest}" if newest else ""
    if stopped:
        print(f"stopped after step {trainer.position.step}{where}; --resume goes on")
        return 128 + trainer.stop_signal if trainer.stop_signal else INTERRUPTED
    if not last:
        print(f"nothing to do: {trainer.position.step} steps are done{where}")
        return 0
    print(
        f"{trainer.position.step} steps, last loss {last['loss']:.6f}, "
        f"peak {mebibytes(last['peak_bytes'])} MiB, slowdown {last['slowdown']:.3f}{where}"
    )
    return 0
