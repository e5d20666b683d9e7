"""Reverse mode through control flow: a call that carries gradients also returns its pullback.

The pullback is a closure over what the forward pass computed, so every activation of every
iteration is held by a closure, where the VM can evict it. A loop's pullback is the composition of
its iterations' (each calls the one of the iterations after it), so that the number of iterations
need not be known. There are no references and no mutation: gradients of captured values are summed
on the way back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tvm import relay

from ..autodiff.reverse import mark_needed, pullback
from ..autodiff.rules import Adjoint
from ..autodiff.scalars import zeros
from ..errors import ModelError
from ..progress import Progress
from ..relay_facts import address
from ..relay_graph import Expr, ExprMap, children, infer_local, post_order, rebuild, tensor_type
from .definitions import (
    AugmentedBranch,
    AugmentedLoop,
    AugmentedTreeFold,
    Branch,
    Definition,
    Definitions,
    Graph,
    Loop,
    TreeFold,
    Type,
)


def differentiate(
    definitions: Definitions,
    outputs: Sequence[Expr],
    seeds: Sequence[Expr | None],
    wrt: Sequence[relay.Var],
    progress: Progress | None = None,
) -> tuple[list[Expr | None], Callable[[Sequence[Expr]], list[Expr]]]:
    """Gradients of ``outputs``, whose adjoints are ``seeds``, with respect to ``wrt``; and a
    function that makes expressions of the forward pass share the calls that the gradients use.

    It must be applied to everything at once that is to share them: forward results and whatever
    was made of the gradients.
    """
    reverse = _Reverse(definitions)
    return pullback(outputs, seeds, wrt, reverse.rule, progress), reverse.sharing


class _Reverse:
    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self.augmented: dict[Expr, Expr] = {}  # plain call -> call that returns a pullback too

    def sharing(self, roots: Sequence[Expr]) -> list[Expr]:
        if not self.augmented:
            return list(roots)
        table = ExprMap()
        for expr in _augmented_order(roots, self.augmented):
            if expr in self.augmented:
                call = table[self.augmented[expr]]
                count = len(expr.checked_type.fields)
                table[expr] = relay.Tuple([relay.TupleGetItem(call, i) for i in range(count)])
                continue
            new = rebuild(expr, table.__getitem__)
            if isinstance(new, relay.TupleGetItem) and isinstance(children(new)[0], relay.Tuple):
                new = children(children(new)[0])[new.index]
            table[expr] = new
        return [table[root] for root in roots]

    def rule(self, adjoint: Adjoint) -> list[Expr | None]:
        definition = self.definitions.of(adjoint.call)
        if isinstance(definition, Branch):
            return self._branch(adjoint, definition)
        if isinstance(definition, TreeFold):
            return self._tree_fold(adjoint, definition)
        assert isinstance(definition, Loop)
        return self._loop(adjoint, definition)

    def _tree_fold(self, adjoint: Adjoint, fold: TreeFold) -> list[Expr | None]:
        if adjoint.needs[3]:
            raise ModelError("the rows of a tree's leaves must be data; train them in the leaf")
        n = fold.states
        wanted = [i for i, need in enumerate(adjoint.needs[4:]) if need]
        kinds = [e.checked_type for e in fold.leaf.results]
        leaf_seeds, node_seeds = [_seed(t) for t in kinds], [_seed(t) for t in kinds]
        of_leaf = [fold.leaf.params[1 + i] for i in wanted]
        of_node = fold.node.params[: 2 * n] + [fold.node.params[2 * n + i] for i in wanted]
        leaf_gradients, leaf = self._body(fold.leaf, list(leaf_seeds), of_leaf)
        node_gradients, node = self._body(fold.node, list(node_seeds), of_node)
        augmented = AugmentedTreeFold(
            TreeFold(leaf, node, n), wanted, leaf_seeds, node_seeds, leaf_gradients, node_gradients
        )
        dys = [
            _zeros(e) if dy is None else dy
            for dy, e in zip(adjoint.outputs, fold.leaf.results, strict=True)
        ]
        types = [adjoint.call.args[4 + i].checked_type for i in wanted]
        found = self._call_pullback("tree_pullback", adjoint, augmented, dys, types)
        where = dict(zip(wanted, found, strict=True))
        return [None] * 4 + [where.get(i) for i in range(len(adjoint.needs) - 4)]

    def _branch(self, adjoint: Adjoint, branch: Branch) -> list[Expr | None]:
        wanted = [i for i, need in enumerate(adjoint.needs[1:]) if need]
        given = [i for i, dy in enumerate(adjoint.outputs) if dy is not None]
        seeds = {i: _seed(branch.then.results[i].checked_type) for i in given}
        graphs, gradients = [], []
        for graph in (branch.then, branch.other):
            adjoints = [seeds.get(i) for i in range(len(graph.results))]
            found, graph = self._body(graph, adjoints, [graph.params[i] for i in wanted])
            graphs.append(graph)
            gradients.append(found)
        augmented = AugmentedBranch(Branch(*graphs), list(seeds.values()), wanted, *gradients)
        types = [branch.then.params[i].checked_type for i in wanted]
        dys = [dy for dy in adjoint.outputs if dy is not None]
        found = self._call_pullback("branch_pullback", adjoint, augmented, dys, types)
        where = dict(zip(wanted, found, strict=True))
        return [None, *(where.get(i) for i in range(len(branch.then.params)))]

    def _loop(self, adjoint: Adjoint, loop: Loop) -> list[Expr | None]:
        needs = adjoint.needs[2:]
        scans = [i for i in range(loop.scans) if needs[loop.states + i]]
        first = loop.states + loop.scans
        captured = [i for i in range(len(loop.captured_params)) if needs[first + i]]
        carried = [loop.row_params[i] for i in scans] + [loop.captured_params[i] for i in captured]
        states = _active_states(loop, set(i for i in range(loop.states) if needs[i]), carried)
        rows = [i for i, dy in enumerate(adjoint.outputs[loop.states :]) if dy is not None]
        wrt = [loop.state_params[i] for i in states] + carried
        state_seeds = {i: _seed(loop.state_params[i].checked_type) for i in states}
        row_seeds = {i: _seed(loop.next_rows[i].checked_type) for i in rows}
        adjoints = [None, *(state_seeds.get(i) for i in range(loop.states))]
        adjoints += [row_seeds.get(i) for i in range(len(loop.next_rows))]
        gradients, body = self._body(loop.body, adjoints, wrt)
        augmented = AugmentedLoop(
            replace(loop, body=body),
            *(states, rows, scans, captured),
            *(list(state_seeds.values()), list(row_seeds.values()), gradients),
        )
        dys = [adjoint.outputs[i] or _zeros(loop.state_params[i]) for i in states]
        dys += [adjoint.outputs[loop.states + i] for i in rows]
        positions = [2 + i for i in states]
        positions += [2 + loop.states + i for i in scans] + [2 + first + i for i in captured]
        types = [adjoint.call.args[i].checked_type for i in positions]
        found = self._call_pullback("loop_pullback", adjoint, augmented, dys, types)
        where = dict(zip(positions, found, strict=True))
        return [where.get(i) for i in range(len(adjoint.call.args))]

    def _body(
        self, graph: Graph, seeds: list[Expr | None], wrt: list[relay.Var]
    ) -> tuple[list[Expr | None], Graph]:
        """Gradients of a body, and the body sharing the inner calls that they use."""
        found, sharing = differentiate(self.definitions, graph.results, seeds, wrt)
        made = [g for g in found if g is not None]
        shared = sharing([*graph.results, *made])
        gradients = iter(shared[len(graph.results) :])
        result = [None if g is None else next(gradients) for g in found]
        return result, Graph(graph.params, shared[: len(graph.results)])

    def _call_pullback(
        self,
        kind: str,
        adjoint: Adjoint,
        definition: Definition,
        dys: Sequence[Expr],
        results: list[Type],
    ) -> list[Expr]:
        """Makes the call of ``adjoint`` the augmented one, and calls its pullback."""
        call, count = adjoint.call, len(adjoint.outputs)
        seeds: list[relay.Var] = []
        if isinstance(definition, AugmentedBranch):
            seeds = definition.seeds
        elif isinstance(definition, AugmentedTreeFold):
            seeds = definition.leaf_seeds
        if isinstance(definition, AugmentedLoop):
            outputs = [
                call.checked_type.fields[definition.loop.states + i] for i in definition.rows
            ]
            kinds = [s.checked_type for s in definition.state_seeds] + outputs
        else:
            kinds = [s.checked_type for s in seeds]
        function = relay.FuncType(kinds, relay.TupleType(results))
        types = [*call.checked_type.fields, function]
        augmented = self.definitions.call(kind, definition, call.args, types, call.span)
        self.augmented[call] = augmented
        back = relay.Call(relay.TupleGetItem(augmented, count), list(dys))
        return [relay.TupleGetItem(back, i) for i in range(len(results))]


def _augmented_order(roots: Sequence[Expr], augmented: dict[Expr, Expr]) -> list[Expr]:
    """post_order, where what a plain call is made of is the augmented call."""
    seen: set[int] = set()
    order: list[Expr] = []
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        expr, ready = stack.pop()
        if ready:
            order.append(expr)
        elif (key := address(expr)) not in seen:
            seen.add(key)
            stack.append((expr, True))
            below = [augmented[expr]] if expr in augmented else children(expr)
            stack.extend((child, False) for child in reversed(below))
    return order


def _active_states(loop: Loop, active: set[int], carried: list[relay.Var]) -> list[int]:
    """States that carry gradients: those that start with one or get one in some iteration."""
    order = post_order(loop.body.results)
    while True:
        wrt = {loop.state_params[i] for i in active} | set(carried)
        needed = mark_needed(order, wrt)
        found = {i for i, e in enumerate(loop.next_states) if e in needed and _is_float(e)}
        if found <= active:
            return sorted(active)
        active = active | found


def _is_float(expr: Expr) -> bool:
    return "float" in expr.checked_type.dtype


def _seed(kind: Type) -> relay.Var:
    return infer_local(relay.Var("adjoint", kind))


def _zeros(like: Expr) -> Expr:
    return zeros(*tensor_type(like))
