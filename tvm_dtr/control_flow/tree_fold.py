"""Folds over binary trees as recursive functions, and their pullbacks.

Sums of the gradients of captured values are handed from node to node: a pullback takes what the
nodes before it have summed and returns that with its own subtree added. Were they returned and
added by the parent, sums of whole subtrees would wait at every level of the tree, and bringing one
back would repeat the backward pass of its subtree.
"""

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
        self.outer = kind.ret_type.fields[-1] if self.augmented else None
        self.pullback, self.result = None, kind.ret_type
        if self.outer is not None:
            sums = self.outer.ret_type
            self.pullback = relay.FuncType([*self.outer.arg_types, *sums.fields], sums)
            self.result = relay.TupleType([*kind.ret_type.fields[:-1], self.pullback])

    def build(self) -> relay.Function:
        child = row_of(self.left, self.node)
        leaf, node = self._leaf(), self._node(child)
        body = relay.If(relay.less(child, relay.const(0, "int64")), leaf, node)
        params = [self.node, *self.params[1:], *self.hoisted_params]
        self.lowering.module[self.step] = relay.Function(params, body, self.result)
        start = relay.Call(self.step, [*self.params, *self.hoisted])
        if self.outer is not None:
            start = self._with_outer_pullback(start, self.outer)
        return relay.Function(self.params, start, self.kind.ret_type)

    def _with_outer_pullback(self, start: Expr, kind: Type) -> Expr:
        """The root's states and a pullback that starts the sums with zeros."""
        out, inner = relay.Var("out"), relay.Var("pullback")
        seeds = [relay.Var("dy", t) for t in kind.arg_types]
        zeros = [filled(0, t) for t in kind.ret_type.fields]
        back = relay.Function(seeds, relay.Call(inner, [*seeds, *zeros]), kind.ret_type)
        states = [relay.TupleGetItem(out, i) for i in range(self.fold.states)]
        whole = relay.Let(
            inner, relay.TupleGetItem(out, self.fold.states), relay.Tuple([*states, back])
        )
        return relay.Let(out, start, whole)

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
        seeds, sums = self._pullback_params()
        made = [g for g in grads if g is not None]
        bound = iter(substitute(made, dict(zip(augmented.leaf_seeds, seeds, strict=True))))
        found = [
            total if g is None else relay.add(total, next(bound))
            for g, total in zip(grads, sums, strict=True)
        ]
        back = relay.Function([*seeds, *sums], relay.Tuple(found), self.pullback.ret_type)
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
        n = self.fold.states
        seeds, sums = self._pullback_params()
        states = self.pullback.arg_types[:n]
        made = [g for g in gradients if g is not None]
        bound = iter(substitute(made, dict(zip(self.augmented.node_seeds, seeds, strict=True))))
        found = [None if g is None else next(bound) for g in gradients]
        below = [
            filled(0, t) if g is None else g
            for g, t in zip(found[: 2 * n], [*states, *states], strict=True)
        ]
        totals = [
            total if g is None else relay.add(total, g)
            for g, total in zip(found[2 * n :], sums, strict=True)
        ]

        def subtrees(names: list[Expr]) -> Expr:
            right = relay.Var("of_right")
            first = relay.Call(behind[1], [*names[n : 2 * n], *names[2 * n :]])
            summed = [relay.TupleGetItem(right, i) for i in range(len(sums))]
            return relay.Let(right, first, relay.Call(behind[0], [*names[:n], *summed]))

        body = in_order([*below, *totals], subtrees)
        return relay.Function([*seeds, *sums], body, self.pullback.ret_type)

    def _pullback_params(self) -> tuple[list[relay.Var], list[relay.Var]]:
        """Adjoints of a node's states, and the sums so far."""
        assert self.outer is not None
        seeds = [relay.Var("dy", t) for t in self.outer.arg_types]
        return seeds, [relay.Var("sum", t) for t in self.outer.ret_type.fields]
