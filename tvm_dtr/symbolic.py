"""Sizes that change from step to step where ops need to know them, such as the batch.

A program of this kind is one program for each size that comes, built (or read from the cache) when
it comes first. So every kernel is one for its size, results are bitwise those of a program built
for it alone, and every op can do it. The virtual machine changes from one to another between steps;
parameters, budget and statistics stay (VirtualMachine, ``change_executable``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from .compile.emit import emit_executable
from .compile.opgraph import OpGraph
from .errors import ModelError, ProgramError
from .frontend import import_model
from .losses import make_loss
from .program import Program
from .relay_graph import DynamicShapeError
from .training import Shapes, TensorSpec, TrainingStep

Sizes = dict[str, int]
BODIES = {"If", "Loop", "Scan", "TreeFold"}
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31)  # sizes that tell which axis follows which name


@dataclass
class SymbolicProgram(Program):
    """A program for each size of the axes ``names``. ``inputs`` have names for sizes, the
    ``executable`` runs nothing and the ``graph`` is empty: a step runs ``at`` its sizes."""

    names: tuple[str, ...] = ()
    make: Callable[[Sizes], Program] | None = field(default=None, repr=False)
    built: dict[tuple[int, ...], Program] = field(default_factory=dict, repr=False)

    def at(self, **sizes: int) -> Program:
        """The program of these sizes, built the first time. Raises what ``build`` does."""
        key = tuple(int(sizes[name]) for name in self.names)
        if key not in self.built:
            assert self.make is not None
            self.built[key] = self.make(dict(zip(self.names, key, strict=True)))
        return self.built[key]

    def for_inputs(self, arrays: Mapping[str, np.ndarray]) -> Program:
        """The program of the sizes that a step's inputs have."""
        sizes = {
            name: size
            for spec in self.inputs
            for name, size in zip(spec.shape, arrays[spec.name].shape, strict=True)
            if isinstance(name, str)
        }
        return self.at(**{name: sizes[name] for name in self.names})

    @property
    def unplanned(self) -> str:
        names = ", ".join(self.names)
        return f"sizes that change from step to step ({names}), and each has ops of its own"

    def out_of_place(self) -> SymbolicProgram:
        return replace(self, make=lambda sizes: self.at(**sizes).out_of_place(), built={})

    def save(self, path: str | Path) -> None:
        """Raises ProgramError: there is no end of sizes."""
        raise ProgramError(
            f"a program of sizes that change ({', '.join(self.names)}) is built as they come and "
            "has no file: build it where it runs, or save one size: program.at(...).save"
        )


def open_names(shapes: Shapes | None) -> list[str]:
    """The names for sizes in ``shapes``, in order."""
    found = [n for shape in (shapes or {}).values() for n in shape if isinstance(n, str)]
    return list(dict.fromkeys(found))


def names_to_build_for(
    proto: onnx.ModelProto, shapes: Shapes | None, attempt: Callable[[Shapes], object]
) -> list[str]:
    """The names of axes that need a program for each size; none if all sizes may stay open.

    ``attempt`` imports and differentiates the model with these shapes, or raises ModelError. The
    number of rows that a loop goes over may stay open; as few names as possible are taken.
    """
    names = open_names(shapes)
    if not names or not any(n.op_type in BODIES for n in proto.graph.node):
        return names
    for count in range(len(names)):
        for chosen in combinations(names, count):
            try:
                attempt(at_sizes(shapes or {}, dict(zip(chosen, _PRIMES, strict=False))))
            except (ModelError, DynamicShapeError):  # of the import, or of a gradient
                continue
            return list(chosen)
    return names


def at_sizes(shapes: Shapes, sizes: Mapping[str, int]) -> Shapes:
    """``shapes`` with numbers for the names that ``sizes`` has."""
    return {
        name: tuple(sizes.get(n, n) if isinstance(n, str) else n for n in shape)
        for name, shape in shapes.items()
    }


def symbolic_program(
    proto: onnx.ModelProto,
    options: Mapping[str, Any],
    target: Any,
    names: Sequence[str],
    make_step: Callable[[Shapes], TrainingStep],
    make: Callable[[Sizes], Program],
) -> Program:
    """A SymbolicProgram over ``names``.

    Raises ModelError, naming node and op, where the model holds numbers that fix a size.
    """
    from .compile.target import resolve_target

    first, second = _probes(names)
    with_names = dict(options["shapes"])
    try:
        step = make_step(at_sizes(with_names, first))
        others = _interface(proto, {**options, "shapes": at_sizes(with_names, second)})
    except ModelError as error:
        sizes = ", ".join(names)
        raise ModelError(
            f"{error} (the model fixes a size that is to change: {sizes}; export it with that axis "
            "dynamic, or give a number)"
        ) from error
    inputs = [_merged(s, others.get(s.name, s), first, second) for s in step.inputs]
    return SymbolicProgram(
        executable=emit_executable(OpGraph(), [], [], None),
        graph=OpGraph(),
        inputs=inputs,
        state=list(step.state),
        results=list(step.results),
        initial_state=dict(step.initial_state),
        parameter_names=list(step.parameter_names),
        target=str(resolve_target(target)),
        library_path="",
        control_flow=True,
        accumulate=step.accumulate,
        source=None if step.source is None else replace(step.source, shapes=with_names),
        names=tuple(names),
        make=make,
    )


def _probes(names: Sequence[str]) -> tuple[Sizes, Sizes]:
    return (
        dict(zip(names, _PRIMES, strict=False)),
        dict(zip(names, _PRIMES[len(names) :], strict=False)),
    )


def _interface(proto: onnx.ModelProto, options: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The inputs of a step, without its gradients."""
    imported = import_model(proto, options["shapes"], options["dtype"])
    loss = make_loss(options["loss"], imported.outputs)
    specs = [*imported.inputs, *([] if loss.input is None else [loss.input])]
    return {spec.name: spec for spec in specs}


def _merged(a: TensorSpec, b: TensorSpec, first: Sizes, second: Sizes) -> TensorSpec:
    """The spec with a name for each size that follows one."""
    return replace(a, shape=tuple(_axis(a, first, second, *pair) for pair in _pairs(a, b)))


def _pairs(a: TensorSpec, b: TensorSpec) -> Iterator[tuple[int | str, int | str]]:
    if len(a.shape) != len(b.shape):
        raise ModelError(f"input '{a.name}' has a number of axes that depends on sizes")
    return zip(a.shape, b.shape, strict=True)


def _axis(spec: TensorSpec, first: Sizes, second: Sizes, x: int | str, y: int | str) -> int | str:
    if x == y:
        return x
    for name in first:
        if (x, y) == (first[name], second[name]):
            return name
    raise ModelError(
        f"input '{spec.name}' would have the size {x} where {first} and {y} where {second}: only "
        "sizes that are one of these names are supported; reshape it inside of the model"
    )
