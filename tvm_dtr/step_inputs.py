"""Checks what a caller gives to a step: names, shapes and types, all problems at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from .errors import InputError


class Spec(Protocol):
    """What is expected of one tensor."""

    @property
    def name(self) -> str: ...
    @property
    def shape(self) -> tuple[int | str, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def classes(self) -> int | None: ...
    @property
    def default(self) -> float | None: ...
    @property
    def children(self) -> tuple[str, str] | None: ...


def check_inputs(specs: Sequence[Spec], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The inputs of a step as contiguous arrays of the expected types.

    Arrays must have the expected type, or one that converts without loss (int32 to int64); Python
    numbers and lists take the expected type. An input that has a default may be left out.

    Raises:
        InputError: names every input that is missing, unknown, misshaped, wrongly typed or, for
            labels, outside of the classes.
    """
    given = with_defaults(specs, given)
    problems = [
        f"missing input '{spec.name}' ({_form(spec)})" for spec in specs if spec.name not in given
    ]
    return _check("input", specs, given, problems)


def with_defaults(specs: Sequence[Spec], given: Mapping[str, Any]) -> dict[str, Any]:
    """``given``, and the defaults of inputs that are not."""
    defaults = {s.name: np.array(s.default, s.dtype) for s in specs if s.default is not None}
    return defaults | dict(given)


def check_state(specs: Sequence[Spec], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """As ``check_inputs``, for parameters; those not given are left out."""
    return _check("parameter", specs, given, [])


def _check(
    what: str, specs: Sequence[Spec], given: Mapping[str, Any], problems: list[str]
) -> dict[str, np.ndarray]:
    expected = {spec.name: spec for spec in specs}
    arrays = {}
    sizes: dict[str, tuple[int, str]] = {}  # of named dimensions, and where they were first met
    for name, value in given.items():
        if name not in expected:
            problems.append(f"unknown {what} '{name}' (known: {', '.join(expected) or 'none'})")
            continue
        try:
            arrays[name] = _convert(expected[name], value)
            _check_names(expected[name], arrays[name].shape, sizes)
        except ValueError as error:
            problems.append(f"{what} '{name}': {error}")
    problems += [p for s in specs if s.children is not None for p in _tree_problems(s, arrays)]
    if problems:
        raise InputError("; ".join(problems))
    return arrays


def _convert(spec: Spec, value: Any) -> np.ndarray:
    if hasattr(value, "numpy") and not isinstance(value, np.ndarray):
        value = value.numpy()
    array = np.asarray(value)
    dtype = np.dtype(spec.dtype)
    if not _fits(array.shape, spec.shape):
        raise ValueError(f"expected {_form(spec)}, got {_got(array)}")
    is_typed = isinstance(value, np.ndarray | np.generic)
    if not _converts(array.dtype, dtype, is_typed):
        raise ValueError(f"expected {_form(spec)}, got {_got(array)}: convert it first")
    _check_classes(spec, array)
    return np.ascontiguousarray(array, dtype=dtype).reshape(array.shape)


def _fits(shape: tuple[int, ...], expected: tuple[int | str, ...]) -> bool:
    return len(shape) == len(expected) and all(
        isinstance(e, str) or n == e for n, e in zip(shape, expected, strict=True)
    )


def _check_names(spec: Spec, shape: tuple[int, ...], sizes: dict[str, tuple[int, str]]) -> None:
    """The same name means the same size, in all inputs."""
    for name, size in zip(spec.shape, shape, strict=True):
        if isinstance(name, str):
            first, owner = sizes.setdefault(name, (size, spec.name))
            if first != size:
                raise ValueError(f"'{name}' is {size}, but {first} in '{owner}'")


def _check_classes(spec: Spec, array: np.ndarray) -> None:
    """A label outside of the classes would change the loss and no gradient: silently wrong."""
    if spec.classes is None or array.size == 0:
        return
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= spec.classes:
        raise ValueError(f"expected values 0 to {spec.classes - 1}, got {low} to {high}")


def _tree_problems(spec: Spec, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """What is wrong with the tree of this root, if all of it is there: a fold that meets a node
    again might never end."""
    left, right = spec.children or ("", "")
    if not {spec.name, left, right} <= arrays.keys():
        return []
    children = {left: arrays[left].tolist(), right: arrays[right].tolist()}
    count = min(map(len, children.values()))
    seen = bytearray(count)
    waiting = [(spec.name, int(arrays[spec.name].ravel()[0]))]
    while waiting:
        where, node = waiting.pop()
        if not 0 <= node < count:
            return [f"input '{where}': node {node} is none of the tree's {count} nodes"]
        if seen[node]:
            return [
                f"inputs '{left}' and '{right}' are no tree: node {node} is reached from the root "
                f"{arrays[spec.name]} more than once; each node needs one parent, and no cycles"
            ]
        seen[node] = 1
        if children[left][node] >= 0:  # else a leaf
            below = [(f"{side}[{node}]", children[side][node]) for side in (left, right)]
            waiting.extend(below)
    return []


def _converts(given: np.dtype, expected: np.dtype, is_typed: bool) -> bool:
    if is_typed:
        return np.can_cast(given, expected, "safe")
    integers_to_floats = given.kind in "iu" and expected.kind == "f"
    return integers_to_floats or np.can_cast(given, expected, "same_kind")


def _form(spec: Spec) -> str:
    return f"{spec.dtype}[{', '.join(map(str, spec.shape))}]"


def _got(array: np.ndarray) -> str:
    return f"{array.dtype}{list(array.shape)}"
