"""Small Relay programs, compiled with the stock compiler, that the VM tests run on both VMs."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
import tvm
from tvm import relay
from tvm.relay.prelude import Prelude

FLOAT = "float32"


def compile_module(module: tvm.IRModule, opt_level: int = 1) -> tvm.runtime.vm.Executable:
    with tvm.transform.PassContext(opt_level=opt_level):
        return relay.vm.compile(module, "llvm")


def compile_function(function: relay.Function, opt_level: int = 1) -> tvm.runtime.vm.Executable:
    return compile_module(tvm.IRModule.from_expr(function), opt_level)


def from_file(executable: tvm.runtime.vm.Executable, path: str) -> tvm.runtime.vm.Executable:
    """The same executable with its kernels in a shared library."""
    code, library = executable.save()
    library.export_library(path)
    return tvm.runtime.vm.Executable.load_exec(code, tvm.runtime.load_module(path))


def flatten(value: object) -> list[np.ndarray]:
    """The arrays in a result, tuples and lists from left to right, tags as arrays of their own."""
    if isinstance(value, tvm.nd.NDArray):
        return [value.numpy()]
    assert isinstance(value, tvm.runtime.container.ADT), value
    arrays = [np.array(value.tag)]
    for field in value:
        arrays.extend(flatten(field))
    return arrays


def assert_same(actual: object, expected: object) -> None:
    """Bitwise equality, tags, shapes and types included."""
    left, right = flatten(actual), flatten(expected)
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()


# Each of the following returns (module, inputs).
Program = tuple[tvm.IRModule, list[object]]


def straight_line() -> Program:
    x = relay.var("x", shape=(4, 8), dtype=FLOAT)
    w = relay.var("w", shape=(6, 8), dtype=FLOAT)
    y = relay.nn.relu(relay.nn.dense(x, w))
    return tvm.IRModule.from_expr(relay.Function([x, w], y)), [randn(4, 8), randn(6, 8)]


def constants() -> Program:
    x = relay.var("x", shape=(40, 40), dtype=FLOAT)
    large = relay.const(randn(40, 40))
    y = relay.nn.dense(x, large) + relay.const(2.5)
    return tvm.IRModule.from_expr(relay.Function([x], y)), [randn(40, 40)]


def returns_constant() -> Program:
    x = relay.var("x", shape=(2,), dtype=FLOAT)
    fields = [relay.const(randn(5, 5)), relay.const(np.float32(3)), x]
    return tvm.IRModule.from_expr(relay.Function([x], relay.Tuple(fields))), [randn(2)]


def branches() -> Program:
    x = relay.var("x", shape=(8,), dtype=FLOAT)
    condition = relay.sum(x) > relay.const(0.0)
    y = relay.If(condition, relay.exp(x), relay.negative(x))
    return tvm.IRModule.from_expr(relay.Function([x], y + x)), [randn(8)]


def tuples() -> Program:
    x = relay.var("x", shape=(6, 4), dtype=FLOAT)
    parts = relay.split(x, 3, axis=0)
    pair = relay.Tuple([parts[0], relay.Tuple([parts[2], relay.tanh(x)])])
    return tvm.IRModule.from_expr(relay.Function([x], pair)), [randn(6, 4)]


def tuple_input() -> Program:
    t = relay.var("t", type_annotation=relay.TupleType([relay.TensorType((3, 2), FLOAT)] * 2))
    y = relay.op._make.concatenate(t, 0) + relay.const(1.0)
    inputs = [tvm.runtime.container.tuple_object([tvm.nd.array(randn(3, 2)) for _ in range(2)])]
    return tvm.IRModule.from_expr(relay.Function([t], y)), inputs


def closures() -> Program:
    """A function that returns one of two functions that capture their surroundings."""
    module = tvm.IRModule()
    x = relay.var("x", shape=(5,), dtype=FLOAT)
    kind = relay.TensorType((5,), FLOAT)
    captured = relay.exp(x)

    def adder(scale: float) -> relay.Function:
        v = relay.var("v", shape=(5,), dtype=FLOAT)
        return relay.Function([v], v * captured + relay.const(scale), kind)

    condition = relay.sum(x) > relay.const(0.0)
    f = relay.var("f")
    body = relay.Let(f, relay.If(condition, adder(1.0), adder(2.0)), f(f(x)))
    module["main"] = relay.Function([x], body)
    return module, [randn(5)]


def returns_closure() -> Program:
    x = relay.var("x", shape=(5,), dtype=FLOAT)
    v = relay.var("v", shape=(5,), dtype=FLOAT)
    inner = relay.Function([v], v + relay.exp(x))
    return tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([inner, x]))), [randn(5)]


def loop(trips: int = 7) -> Program:
    """Recursion that stops at a counter."""
    module = tvm.IRModule()
    f = relay.GlobalVar("loop")
    kind = relay.TensorType((4, 4), FLOAT)
    i = relay.var("i", shape=(), dtype="int32")
    x = relay.var("x", shape=(4, 4), dtype=FLOAT)
    again = f(i - relay.const(1), relay.tanh(relay.nn.dense(x, x)))
    body = relay.If(relay.equal(i, relay.const(0)), x, again)
    module[f] = relay.Function([i, x], body, kind)
    n = relay.var("n", shape=(), dtype="int32")
    y = relay.var("y", shape=(4, 4), dtype=FLOAT)
    module["main"] = relay.Function([n, y], f(n, y))
    return module, [np.array(trips, "int32"), randn(4, 4)]


def loop_gradient(trips: int = 5, size: int = 8) -> Program:
    """Reverse mode through a loop with a trip count known at run time: each turn returns its value
    and a closure that maps the gradient of the value to those of its operands."""
    module = tvm.IRModule()
    matrix = relay.TensorType((size, size), FLOAT)
    pair = relay.TupleType([matrix, matrix])
    pullback = relay.FuncType([matrix], pair)
    turn = relay.GlobalVar("turn")
    i, x, w = (
        relay.Var("i", relay.TensorType((), "int32")),
        relay.Var("x", matrix),
        relay.Var("w", matrix),
    )
    build = relay.ScopeBuilder()
    with build.if_scope(relay.greater(i, relay.const(0))):
        y = build.let("y", relay.tanh(relay.nn.dense(x, w)))
        rest = build.let("rest", turn(i - relay.const(1), y, w))
        later = build.let("later", relay.TupleGetItem(rest, 1))
        build.ret(relay.Tuple([relay.TupleGetItem(rest, 0), _pull_back(matrix, later, x, y, w)]))
    with build.else_scope():
        gradient = relay.Var("g", matrix)
        zeros = relay.zeros((size, size), FLOAT)
        last = relay.Function([gradient], relay.Tuple([gradient, zeros]), pair)
        build.ret(relay.Tuple([x, last]))
    module[turn] = relay.Function([i, x, w], build.get(), relay.TupleType([matrix, pullback]))
    n, x0, w0 = (relay.Var(v.name_hint + "0", v.type_annotation) for v in (i, x, w))
    outcome = relay.Var("outcome")
    gradients = relay.TupleGetItem(outcome, 1)(relay.ones((size, size), FLOAT))
    body = relay.Let(
        outcome, turn(n, x0, w0), relay.Tuple([relay.TupleGetItem(outcome, 0), gradients])
    )
    module["main"] = relay.Function([n, x0, w0], body)
    return module, [np.array(trips, "int32"), randn(size, size), randn(size, size) / 4]


def _pull_back(
    matrix: relay.TensorType, later: relay.Expr, x: relay.Expr, y: relay.Expr, w: relay.Expr
) -> relay.Function:
    gradient = relay.Var("g", matrix)
    build = relay.ScopeBuilder()
    behind = build.let("behind", later(gradient))
    one = relay.const(1.0)
    slope = build.let("slope", relay.TupleGetItem(behind, 0) * (one - y * y))
    to_x = relay.nn.dense(slope, relay.transpose(w))
    to_w = relay.nn.dense(relay.transpose(slope), relay.transpose(x))
    build.ret(relay.Tuple([to_x, to_w + relay.TupleGetItem(behind, 1)]))
    return relay.Function([gradient], build.get(), relay.TupleType([matrix, matrix]))


def lists(length: int = 6) -> Program:
    """Builds a list, maps over it and returns it."""
    module = tvm.IRModule()
    prelude = Prelude(module)
    _, cons, nil = module.get_type("List")
    x = relay.var("x", shape=(3,), dtype=FLOAT)
    value: relay.Expr = nil()
    for k in range(length):
        value = cons(x * relay.const(float(k)), value)
    v = relay.var("v", shape=(3,), dtype=FLOAT)
    doubled = relay.Function([v], relay.exp(v))
    mapped = prelude.mod.get_global_var("map")(doubled, value)
    module["main"] = relay.Function([x], mapped)
    return module, [randn(3)]


def trees() -> Program:
    """A tree, folded to the number of its leaves."""
    module = tvm.IRModule()
    Prelude(module)
    _, rose = module.get_type("Tree")
    _, cons, nil = module.get_type("List")
    x = relay.var("x", shape=(), dtype=FLOAT)
    leaf = rose(x, nil())
    tree = rose(x + x, cons(leaf, cons(rose(x * x, cons(leaf, nil())), nil())))
    size = module.get_global_var("size")
    module["main"] = relay.Function([x], relay.Tuple([size(tree), tree]))
    return module, [np.float32(1.5)]


def optional(present: bool) -> Program:
    """A match without a clause for None: fatal if there is nothing."""
    module = tvm.IRModule()
    Prelude(module)
    _, some, none = module.get_type("Option")
    x = relay.var("x", shape=(3,), dtype=FLOAT)
    v = relay.var("v")
    condition = relay.sum(x) > relay.const(0.0)
    value = relay.If(condition, some(x), none())
    clause = relay.adt.Clause(
        relay.adt.PatternConstructor(some, [relay.adt.PatternVar(v)]), v + relay.const(1.0)
    )
    module["main"] = relay.Function([x], relay.adt.Match(value, [clause], complete=False))
    return module, [np.full(3, 1 if present else -1, FLOAT)]


def dynamic() -> Program:
    x = relay.var("x", shape=(relay.Any(), 4), dtype=FLOAT)
    y = relay.concatenate([x, relay.exp(x)], axis=0)
    z = relay.reshape(y, (-1,))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(z))), [randn(3, 4)]


def dynamic_shape_of() -> Program:
    x = relay.var("x", shape=(relay.Any(), relay.Any()), dtype=FLOAT)
    return tvm.IRModule.from_expr(relay.Function([x], relay.shape_of(x))), [randn(3, 4)]


def empty_output() -> Program:
    x = relay.var("x", shape=(relay.Any(), 4), dtype=FLOAT)
    y = relay.exp(x)
    return tvm.IRModule.from_expr(relay.Function([x], y + y)), [np.zeros((0, 4), FLOAT)]


def reshape() -> Program:
    x = relay.var("x", shape=(4, 6), dtype=FLOAT)
    y = relay.annotation.stop_fusion(relay.exp(x))
    flat = relay.reshape(y, (24,))
    z = relay.Tuple([relay.nn.softmax(relay.reshape(flat, (6, 4))), flat])
    return tvm.IRModule.from_expr(relay.Function([x], z)), [randn(4, 6)]


PROGRAMS: dict[str, Callable[[], Program]] = {
    f.__name__: f
    for f in (
        straight_line,
        constants,
        returns_constant,
        branches,
        tuples,
        tuple_input,
        closures,
        loop,
        loop_gradient,
        lists,
        trees,
        dynamic,
        dynamic_shape_of,
        empty_output,
        reshape,
    )
}


def randn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(FLOAT)


def residual_chain(depth: int, size: int) -> Program:
    """f_1 = tanh(x) ... f_n, then b = b * f_i from the last to the first: every f_i is used twice,
    the second time after everything behind it, as activations are in a backward pass."""
    x = relay.var("x", shape=(size,), dtype=FLOAT)
    forward = [x]
    for _ in range(depth):
        forward.append(relay.annotation.stop_fusion(relay.tanh(forward[-1] + relay.const(0.5))))
    back: relay.Expr = forward[-1]
    for f in reversed(forward[1:-1]):
        back = relay.annotation.stop_fusion(back * f)
    return tvm.IRModule.from_expr(relay.Function([x], back)), [randn(size)]


def random_program(seed: int, calls: int = 40) -> Program:
    """A DAG of ops on tensors of 8 KiB that fusion leaves apart: old values are read again, some
    through views, some ops have several outputs, some results are returned twice."""
    rng = np.random.default_rng(seed)
    x = relay.var("x", shape=(2048,), dtype=FLOAT)
    values: list[relay.Expr] = [x]

    def pick() -> relay.Expr:
        return values[rng.integers(0, len(values))]

    for _ in range(calls):
        kind = rng.integers(0, 6)
        if kind == 0:
            parts = relay.annotation.stop_fusion(relay.sin(pick()))
            halves = relay.split(parts, 2, axis=0)
            values.append(relay.concatenate([halves[1], halves[0]], axis=0))
        elif kind == 1:
            square = relay.nn.softmax(relay.reshape(pick(), (32, 64)))
            values.append(relay.reshape(relay.annotation.stop_fusion(square), (2048,)))
        else:
            op = (relay.tanh, relay.sin, relay.negative, relay.nn.relu)[rng.integers(0, 4)]
            values.append(relay.annotation.stop_fusion(op(pick() + pick() * relay.const(0.5))))
    results = [values[-1], *(values[i] for i in rng.integers(0, len(values), 3))]
    body = relay.Tuple([*results, results[1]])
    return tvm.IRModule.from_expr(relay.Function([x], body)), [randn(2048)]
