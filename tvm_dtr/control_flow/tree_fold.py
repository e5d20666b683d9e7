"""Folds over binary trees as recursive functions, and their pullbacks."""

from __future__ import annotations

from typing import Any

from tvm import relay

from ..relay_graph import Expr, substitute
from .definitions import INDEX, AugmentedTreeFold, Graph, TreeFold, Type
from .hoist import invariants
from .tensors import filled, in_order, row_of


def lower_tree_fold(
    lowering: Any, name: str, definition: TreeFold | AugmentedTreeFold, kind: Type
) -> relay.Function:
    """The function that the call of a fold becomes; it adds the recursive one to the module."""
    return _TreeFoldFunction(lowering, name, definition, kind).build()


class _TreeFoldFunction:
    """Writes ``step(i, ...)``, the states of node i, and with a pullback that of its subtree."""

    def __init__(
        self, lowering: Any, name: str, definition: TreeFold | AugmentedTreeFold, kind: Type
    ) -> None:
        self.lowering, self.kind = lowering, kind
        self.augmented = definition if isinstance(definition, AugmentedTreeFold) else None
        self.fold = definition.fold if isinstance(definition, AugmentedTreeFold) else definition
        self.step = relay.GlobalVar(f"{name}_step")
        self.params = [relay.Var("x", t) for t in kind.arg_types]
        self.node = relay.Var("node", INDEX)
        self.left, self.right, self.rows = self.params[1:4]
        self.captured = self.params[4:]
        self.hoisted: list[Expr] = []
        self.hoisted_params: list[relay.Var] = []
        self.pullback = kind.ret_type.fields[-1] if self.augmented else None

    def build(self) -> relay.Function:
        child = row_of(self.left, self.node)
        leaf, node = self._leaf(), self._node(child)
        body = relay.If(relay.less(child, relay.const(0, "int64")), leaf, node)
        params = [self.node, *self.params[1:], *self.hoisted_params]
        self.lowering.module[self.step] = relay.Function(params, body, self.kind.ret_type)
        start = relay.Call(self.step, [*self.params, *self.hoisted])
        return relay.Function(self.params, start, self.kind.ret_type)

    def _call(self, node: Expr) -> Expr:
        return relay.Call(self.step, [node, *self.params[1:], *self.hoisted_params])

    def _bound(self, graph: Graph, first: list[Expr], gradients: list[Expr | None]) -> Any:
        """Results and gradients of a body over this function's parameters."""
        made = [g for g in gradients if g is not None]
        roots = self.lowering.resolve([*graph.results, *made])
        own = graph.params[len(first) :]
        hoisted, types = invariants(roots, own)
        names = [relay.Var("invariant", t) for t in types]
        captured = dict(zip(own, self.captured, strict=True))
        self.hoisted += substitute(hoisted, captured)
        self.hoisted_params += names
        binding = dict(zip(graph.params, [*first, *self.captured], strict=True))
        bound = substitute(roots, {**binding, **dict(zip(hoisted, names, strict=True))})
        rest = iter(bound[len(graph.results) :])
        return bound[: len(graph.results)], [None if g is None else next(rest) for g in gradients]

    def _leaf(self) -> Expr:
        augmented = self.augmented
        gradients = augmented.leaf_gradients if augmented else []
        row = row_of(self.rows, self.node)
        results, grads = self._bound(self.fold.leaf, [row], gradients)
        if augmented is None or self.pullback is None:
            return in_order(results, relay.Tuple)
        kinds = self.pullback.ret_type.fields
        seeds = [relay.Var("dy", t) for t in self.pullback.arg_types]
        found = [filled(0, t) if g is None else g for g, t in zip(grads, kinds, strict=True)]
        found = substitute(found, dict(zip(augmented.leaf_seeds, seeds, strict=True)))
        back = relay.Function(seeds, relay.Tuple(found), self.pullback.ret_type)
        return in_order(results, lambda names: relay.Tuple([*names, back]))

    def _node(self, child: Expr) -> Expr:
        n = self.fold.states
        left, right = relay.Var("left"), relay.Var("right")
        first = [relay.TupleGetItem(side, i) for side in (left, right) for i in range(n)]
        gradients = self.augmented.node_gradients if self.augmented else []
        names = [relay.Var("below") for _ in first]
        results, grads = self._bound(self.fold.node, names, gradients)
        if self.augmented is None:
            whole = in_order(results, relay.Tuple)
        else:
            behind = [relay.Var("left_pullback"), relay.Var("right_pullback")]
            back = self._node_pullback(behind, grads)
            whole = in_order(results, lambda found: relay.Tuple([*found, back]))
            for name, side in zip(behind, (left, right), strict=True):
                whole = relay.Let(name, relay.TupleGetItem(side, n), whole)
        for name, value in reversed(list(zip(names, first, strict=True))):
            whole = relay.Let(name, value, whole)
        whole = relay.Let(right, self._call(row_of(self.right, self.node)), whole)
        return relay.Let(left, self._call(child), whole)

    def _node_pullback(self, behind: list[Expr], gradients: list[Expr | None]) -> relay.Function:
        """This node, then the right subtree, then the left one."""
        assert self.augmented is not None and self.pullback is not None
        n, kinds = self.fold.states, self.pullback.ret_type.fields
        seeds = [relay.Var("dy", t) for t in self.pullback.arg_types]
        types = [*self.pullback.arg_types, *self.pullback.arg_types, *kinds]
        found = [filled(0, t) if g is None else g for g, t in zip(gradients, types, strict=True)]
        found = substitute(found, dict(zip(self.augmented.node_seeds, seeds, strict=True)))

        def below(names: list[Expr]) -> Expr:
            right, left = relay.Var("of_right"), relay.Var("of_left")
            total = [
                relay.add(
                    relay.add(names[2 * n + i], relay.TupleGetItem(right, i)),
                    relay.TupleGetItem(left, i),
                )
                for i in range(len(kinds))
            ]
            whole = relay.Let(left, relay.Call(behind[0], names[:n]), relay.Tuple(total))
            return relay.Let(right, relay.Call(behind[1], names[n : 2 * n]), whole)

        return relay.Function(seeds, in_order(found, below), self.pullback.ret_type)
