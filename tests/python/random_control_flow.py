"""Random Relay programs with branches, loops, closures, lists and tuples, all choices drawn by one
function, so that a seed or a shrinking search can drive it.

Every value is a (2048,) float32 tensor (8 KiB) unless it is on its way through a view, tuple, list
or closure; ops are kept apart from fusion, so that each tensor is a storage of its own.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

os.environ.setdefault("TOPHUB_LOCATION", "NONE")
import tvm
from tvm import relay

LENGTH = 2048
TENSOR = relay.TensorType((LENGTH,), "float32")

#: choose(n) is an integer in [0, n).
Choose = Callable[[int], int]


@dataclass
class RandomModule:
    """A module, the arguments of its main function, and what it is made of."""

    module: tvm.IRModule
    inputs: list[np.ndarray]
    kinds: Counter[str] = field(default_factory=Counter)
    depth: int = 0


class Generator:
    """Builds one random module; ``choose`` draws every choice, ``calls`` bounds its size."""

    def __init__(self, choose: Choose, calls: int = 24) -> None:
        self._choose = choose
        self._left = calls
        self._module = tvm.IRModule()
        self._module.import_from_std("prelude.rly")
        _, self._cons, self._nil = self._module.get_type("List")
        self._trips = relay.Var("trips", relay.TensorType((), "int32"))
        self._names = 0
        self.kinds: Counter[str] = Counter()
        self.depth = 0

    def make(self) -> RandomModule:
        """Returns the module; its main takes two tensors and a trip count."""
        x, y = (relay.Var(name, TENSOR) for name in "xy")
        build = relay.ScopeBuilder()
        values = self._grow(build, [x, y], depth=0)
        picked = [values[-1], *(self._pick(values) for _ in range(2))]
        build.ret(relay.Tuple([*picked, picked[1]]))
        self._module["main"] = relay.Function([x, y, self._trips], build.get())
        rng = np.random.default_rng(self._choose(2**16))
        arrays = [rng.standard_normal(LENGTH).astype("float32") for _ in range(2)]
        trips = np.array(self._choose(6), "int32")
        return RandomModule(self._module, [*arrays, trips], self.kinds, self.depth)

    def _grow(self, build: relay.ScopeBuilder, values: list, depth: int) -> list:
        self.depth = max(self.depth, depth)
        values = list(values)
        count = 3 + self._choose(5) if depth else self._left
        for _ in range(count):
            if self._left <= 0:
                break
            self._left -= 1
            values.append(build.let(self._name("v"), self._expression(values, depth)))
        return values

    def _expression(self, values: list, depth: int) -> relay.Expr:
        nested = (self._branch, self._loop, self._closure, self._list)
        flat = (self._elementwise, self._elementwise, self._halves, self._view, self._tuple)
        makers = (*flat, *flat, *nested) if depth < 2 else flat
        maker = makers[self._choose(len(makers))]
        self.kinds[maker.__name__.strip("_")] += 1
        return maker(values, depth)

    def _pick(self, values: list) -> relay.Expr:
        return values[self._choose(len(values))]

    def _name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def _elementwise(self, values: list, depth: int) -> relay.Expr:
        op = (relay.tanh, relay.sin, relay.negative, relay.nn.relu)[self._choose(4)]
        return _apart(op(self._pick(values) + self._pick(values) * relay.const(0.5)))

    def _halves(self, values: list, depth: int) -> relay.Expr:
        halves = relay.split(_apart(relay.sin(self._pick(values))), 2, axis=0)
        return relay.concatenate([halves[1], halves[0]], axis=0)

    def _view(self, values: list, depth: int) -> relay.Expr:
        square = _apart(relay.nn.softmax(relay.reshape(self._pick(values), (32, 64))))
        return relay.reshape(square, (LENGTH,))

    def _tuple(self, values: list, depth: int) -> relay.Expr:
        first, second = self._pick(values), _apart(relay.tanh(self._pick(values)))
        pair = relay.Var(self._name("pair"), relay.TupleType([TENSOR, TENSOR]))
        chosen = relay.TupleGetItem(pair, self._choose(2))
        return relay.Let(pair, relay.Tuple([first, second]), _apart(relay.sin(chosen)))

    def _condition(self, values: list) -> relay.Expr:
        return relay.greater(relay.sum(self._pick(values)), relay.const(0.0))

    def _block(self, values: list, depth: int) -> relay.Expr:
        build = relay.ScopeBuilder()
        build.ret(self._pick(self._grow(build, values, depth + 1)[-2:]))
        return build.get()

    def _branch(self, values: list, depth: int) -> relay.Expr:
        condition = self._condition(values)
        return relay.If(condition, self._block(values, depth), self._block(values, depth))

    def _loop(self, values: list, depth: int) -> relay.Expr:
        """A global recursive function that keeps all its turns' values alive or not."""
        name = relay.GlobalVar(self._name("loop"))
        i = relay.Var("i", relay.TensorType((), "int32"))
        carried, outer = relay.Var("carried", TENSOR), relay.Var("outer", TENSOR)
        body = self._block([carried, outer], depth)
        again = name(i - relay.const(1), body, outer)
        if self._choose(2):  # not a tail call: the turn's value is used after the ones behind it
            again = _apart(again + carried)
        result = relay.If(relay.greater(i, relay.const(0)), again, carried)
        self._module[name] = relay.Function([i, carried, outer], result, TENSOR)
        trips = self._trips if depth == 0 else relay.const(2)
        return name(trips, self._pick(values), self._pick(values))

    def _closure(self, values: list, depth: int) -> relay.Expr:
        """One of two functions that capture their surroundings, called twice."""
        captured = values[-4:]

        def function() -> relay.Function:
            argument = relay.Var(self._name("a"), TENSOR)
            return relay.Function([argument], self._block([*captured, argument], depth), TENSOR)

        f = relay.Var(self._name("f"), relay.FuncType([TENSOR], TENSOR))
        either = relay.If(self._condition(values), function(), function())
        return relay.Let(f, either, f(f(self._pick(values))))

    def _list(self, values: list, depth: int) -> relay.Expr:
        """A list of tensors, one element taken out by matching."""
        value: relay.Expr = self._nil()
        for _ in range(1 + self._choose(3)):
            value = self._cons(_apart(relay.tanh(self._pick(values))), value)
        head, tail = relay.Var(self._name("head")), relay.Var(self._name("tail"))
        pattern = relay.adt.PatternConstructor(
            self._cons, [relay.adt.PatternVar(head), relay.adt.PatternVar(tail)]
        )
        some = relay.adt.Clause(pattern, head)
        none = relay.adt.Clause(relay.adt.PatternWildcard(), self._pick(values))
        return relay.adt.Match(value, [some, none])


def _apart(value: relay.Expr) -> relay.Expr:
    return relay.annotation.stop_fusion(value)


def from_seed(seed: int, calls: int = 24) -> RandomModule:
    """The same seed gives the same module."""
    rng = np.random.default_rng(seed)
    return Generator(lambda n: int(rng.integers(0, n)), calls).make()
