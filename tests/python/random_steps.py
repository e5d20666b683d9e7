"""Random straight-line steps: DAGs with views, multi-output ops, constants, repeated results."""

from __future__ import annotations

import os

os.environ.setdefault("TOPHUB_LOCATION", "NONE")

import numpy as np
import tvm
from tvm import relay

from tvm_dtr.training import Result, TensorSpec, TrainingStep

SHAPE = (4, 6)


def as_step(function: relay.Function, seed: int = 0) -> TrainingStep:
    """Wrap a function as a step: its first parameter is an input, the others are state."""
    function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    specs = []
    for p in function.params:
        shape = tuple(int(extent) for extent in p.checked_type.shape)
        specs.append(TensorSpec(p.name_hint, shape, str(p.checked_type.dtype)))
    arrays = arrays_for(specs, seed)
    state = specs[1:]
    return TrainingStep(
        function=function,
        inputs=specs[:1],
        state=state,
        initial_state={spec.name: arrays[spec.name] for spec in state},
        results=[Result(f"result{i}", "output") for i in range(len(function.body.fields))],
        parameter_names=[spec.name for spec in state],
    )


def arrays_for(specs: list[TensorSpec], seed: int) -> dict[str, np.ndarray]:
    """Standard normal arrays."""
    rng = np.random.default_rng(seed)
    return {s.name: rng.standard_normal(s.shape).astype(s.dtype) for s in specs}


def random_step(seed: int, calls: int = 25) -> TrainingStep:
    """A step over (4, 6) tensors; the same seed gives the same step."""
    rng = np.random.default_rng(seed)
    params = [relay.var(name, shape=SHAPE) for name in ("x", "a", "b", "unused")]
    weight = relay.var("w", shape=(6, 6))
    values = [*params[:3], relay.const(rng.standard_normal(SHAPE).astype("float32"))]
    for _ in range(calls):
        values += _grow(rng, values, weight)
    results = [values[-1]] + [values[i] for i in rng.integers(0, len(values), 5)]
    results += [results[1], params[1]]
    return as_step(relay.Function([*params, weight], relay.Tuple(results)), seed)


def _grow(rng: np.random.Generator, values: list, weight: relay.Var) -> list:
    def pick() -> relay.Expr:
        return values[rng.integers(0, len(values))]

    kind = rng.integers(0, 10)
    x = pick()
    if kind == 0:
        return [relay.nn.dense(x, weight)]
    if kind == 1:
        return [relay.reshape(relay.nn.dense(relay.reshape(x, (2, 12)), _eye(rng)), SHAPE)]
    if kind == 2:
        halves = relay.split(x, 2, axis=1)
        return [relay.concatenate([halves[1], halves[0]], axis=1)]
    if kind == 3:
        parts = relay.split(relay.nn.softmax(x), 2, axis=0)
        return [relay.concatenate([parts[0], parts[0]], axis=0)]
    if kind == 4:
        return [relay.multiply(x, relay.const(float(rng.standard_normal())))]
    if kind == 5:
        return [relay.add(x, relay.mean(pick(), axis=0, keepdims=True))]
    if kind == 6:
        return [relay.squeeze(relay.expand_dims(relay.nn.softmax(x), 0), [0])]
    if kind == 7:
        mask = relay.cast(relay.greater(x, relay.const(0.0)), "float32")
        return [relay.multiply(mask, pick())]
    if kind == 8:
        return [relay.reshape(relay.reshape(relay.transpose(x), (3, 8)), SHAPE)]
    return [relay.tanh(relay.subtract(x, pick()))]


def _eye(rng: np.random.Generator) -> relay.Constant:
    return relay.const(rng.standard_normal((12, 12)).astype("float32"))


def run_stock(executable: object, step: TrainingStep, seed: int = 1) -> list[np.ndarray]:
    """The results of one step on TVM's own VM."""
    vm = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu())
    arrays = {**step.initial_state, **arrays_for(step.inputs, seed)}
    names = [spec.name for spec in [*step.inputs, *step.state]]
    return [r.numpy() for r in vm.invoke("main", *(arrays[name] for name in names))]


def same_bits(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    """Whether two lists of arrays agree in shape, dtype and every bit."""
    return len(left) == len(right) and all(
        a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
        for a, b in zip(left, right, strict=True)
    )
