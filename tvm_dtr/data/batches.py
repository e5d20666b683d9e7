"""Batches by epoch. What an epoch holds depends on its number and the seed alone, so that a
resumed run sees the batches that the uninterrupted one would."""

from __future__ import annotations

import inspect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import InputError, UsageError
from ..training import TensorSpec

Batch = dict[str, Any]


class Batches(Protocol):
    """``per_epoch``: batches in an epoch, None where nobody knows before its end."""

    @property
    def per_epoch(self) -> int | None: ...

    @property
    def batch_size(self) -> int: ...

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        """The batches of epoch ``number`` (from 0) from index ``start`` on."""
        ...

    def identity(self) -> dict[str, Any]:
        """What must be equal for a resumed run to see the same batches; ready for JSON."""
        ...


def fed(specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """The inputs that data must hold: those without a default."""
    return [spec for spec in specs if spec.default is None]


def rows(specs: Sequence[TensorSpec]) -> int:
    """Samples in a batch: the first axis of the first input. Raises UsageError for a scalar."""
    if not fed(specs) or not fed(specs)[0].shape:
        raise UsageError("the program's first input has no axis of samples; data has no batches")
    for spec in fed(specs):
        for size in spec.shape:
            if isinstance(size, str):
                raise UsageError(
                    f"input '{spec.name}' has a size that changes from step to step ('{size}'); "
                    "data has no batches of it: give each step its arrays (VirtualMachine.step)"
                )
    return int(fed(specs)[0].shape[0])


class ArrayBatches:
    """Batches of arrays that hold a sample per row, in memory or mapped from files.

    An input whose batch holds several rows per sample (the labels of each position of a sequence)
    has them along further axes of the array: (samples, length) for a batch of (rows * length,).
    Shuffling draws a permutation from (seed, epoch). The rows that do not fill a last batch are
    left out with ``drop_last``, else the batch is filled up from the start of the same order.

    Raises:
        InputError: names every array that is missing, or whose rows do not fit the input.
    """

    def __init__(
        self,
        specs: Sequence[TensorSpec],
        arrays: Mapping[str, np.ndarray],
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
        name: str = "data",
    ) -> None:
        self.batch_size = rows(specs)
        self._specs = fed(specs)
        self._arrays = {spec.name: arrays[spec.name] for spec in self._specs if spec.name in arrays}
        self._shuffle, self._seed, self._drop_last = shuffle, seed, drop_last
        self._check(name, arrays)
        #: What messages about its batches call it.
        self.name = name
        self._warn_of_unused(name, arrays)
        self.samples = len(self._arrays[self._specs[0].name])
        full = self.samples // self.batch_size
        self.per_epoch = full if drop_last else math.ceil(self.samples / self.batch_size)
        if self.per_epoch == 0:
            raise InputError(
                f"{name}: {self.samples} samples do not fill a batch of {self.batch_size}; build "
                "with a smaller batch, or keep the last batch (drop_last=False, --keep-last)"
            )

    def _check(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        problems = []
        for spec in self._specs:
            if spec.name not in arrays:
                problems.append(f"no array '{spec.name}' (it has {', '.join(arrays) or 'none'})")
                continue
            array = arrays[spec.name]
            wanted = math.prod(map(int, spec.shape)) // self.batch_size
            got = math.prod(array.shape[1:])
            whole = spec.shape[:1] == (self.batch_size,)
            if array.ndim == 0 or got != wanted or (whole and array.shape[1:] != spec.shape[1:]):
                problems.append(
                    f"array '{spec.name}' is {array.dtype}{list(array.shape)}, expected rows for "
                    f"{spec.dtype}{list(spec.shape)}"
                )
        counts = {key: len(a) for key, a in self._arrays.items() if a.ndim}
        if not problems and len(set(counts.values())) > 1:
            shown = ", ".join(f"{key} {count}" for key, count in counts.items())
            problems.append(f"the arrays hold different numbers of samples: {shown}")
        if problems:
            raise InputError(f"{name}: {'; '.join(problems)}")

    def _warn_of_unused(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        unused = [key for key in arrays if key not in self._arrays]
        if unused:
            warnings.warn(
                f"{name}: no input is called {', '.join(map(repr, unused))}, not used (the inputs "
                f"are {', '.join(spec.name for spec in self._specs)})",
                stacklevel=4,
            )

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        order = self._order(number)
        for index in range(start, self.per_epoch):
            first = index * self.batch_size
            chosen = order[first : first + self.batch_size]
            if len(chosen) < self.batch_size:
                chosen = np.concatenate([chosen, np.resize(order, self.batch_size - len(chosen))])
            yield self._take(chosen)

    def _order(self, number: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(self.samples)
        return np.random.default_rng([self._seed, number]).permutation(self.samples)

    def _take(self, chosen: np.ndarray) -> Batch:
        return {
            spec.name: np.asarray(self._arrays[spec.name][chosen]).reshape(spec.shape)
            for spec in self._specs
        }

    def identity(self) -> dict[str, Any]:
        return {
            "samples": self.samples,
            "batch_size": self.batch_size,
            "shuffle": self._shuffle,
            "seed": self._seed,
            "drop_last": self._drop_last,
        }


class IterableBatches:
    """Batches that something else makes: an iterable (each epoch iterates it once, a PyTorch
    loader for example), or a function that gives one, called with those of the keywords ``epoch``
    and ``seed`` that it takes.

    A batch is a mapping by input name, or a sequence in the order of the program's inputs.
    """

    def __init__(self, specs: Sequence[TensorSpec], source: Any, *, seed: int = 0) -> None:
        self.batch_size = rows(specs)
        self._names = [spec.name for spec in fed(specs)]
        self._source, self._seed = source, seed
        self._used = False
        try:
            self.per_epoch: int | None = None if callable(source) else len(source)
        except TypeError:
            self.per_epoch = None

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        for item in itertools.islice(self._iterate(number), start, None):
            yield self._named(item)

    def _iterate(self, number: int) -> Iterable[Any]:
        if callable(self._source):
            keywords = {"epoch": number, "seed": self._seed}
            accepted = inspect.signature(self._source).parameters
            return self._source(**{k: v for k, v in keywords.items() if k in accepted})
        once = iter(self._source) is self._source
        if once and self._used:
            raise InputError(
                "the data is an iterator that has been read to its end; for more than one epoch "
                "give an iterable that can start again, or a function that makes iterators"
            )
        self._used = True
        if not once and hasattr(self._source, "set_epoch"):
            self._source.set_epoch(number)
        return self._source

    def _named(self, item: Any) -> Batch:
        if isinstance(item, Mapping):
            return dict(item)
        if not isinstance(item, tuple | list) or len(item) != len(self._names):
            got = f"{len(item)} items" if isinstance(item, tuple | list) else type(item).__name__
            raise InputError(
                f"a batch is {got}, expected a mapping, or a sequence of {', '.join(self._names)}"
            )
        return dict(zip(self._names, item, strict=True))

    def identity(self) -> dict[str, Any]:
        return {"batch_size": self.batch_size, "seed": self._seed}


class SyntheticBatches:
    """Made-up batches: normal floats, labels uniform over their classes. ``per_epoch`` of them,
    the same in each epoch, so that there is something to learn."""

    def __init__(self, specs: Sequence[TensorSpec], *, per_epoch: int = 8, seed: int = 0) -> None:
        self.batch_size = rows(specs)
        self.per_epoch = per_epoch
        self._specs, self._seed = fed(specs), seed

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        from .synthetic import draw

        for index in range(start, self.per_epoch):
            random = np.random.default_rng([self._seed, index])
            yield {spec.name: draw(random, spec) for spec in self._specs}

    def identity(self) -> dict[str, Any]:
        return {"synthetic": self.per_epoch, "batch_size": self.batch_size, "seed": self._seed}
