"""From calls of control flow to a Relay module of recursive functions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import tvm
from tvm import relay

from ..autodiff import inline_composites
from ..relay_graph import Expr, post_order, rebuild, substitute
from ..relay_ops import use_own_kernels
from .definitions import (
    CONDITION,
    INDEX,
    AugmentedBranch,
    AugmentedLoop,
    AugmentedTreeFold,
    Branch,
    Definitions,
    Graph,
    Loop,
    TreeFold,
    Type,
)
from .hoist import invariants
from .row_list import RowLists
from .tensors import filled, in_order, row_of
from .tree_fold import lower_tree_fold


def lower_step(
    params: Sequence[relay.Var], fields: Sequence[Expr], definitions: Definitions
) -> tvm.IRModule:
    """The module whose "main" computes the tuple of ``fields``; one function for each branch and
    loop that is used, and those of the lists of rows. Not yet typed."""
    lowering = _Lowering(definitions)
    body = relay.Tuple(lowering.resolve(list(fields)))
    lowering.module["main"] = relay.Function(list(params), body)
    return lowering.module


class _Lowering:
    def __init__(self, definitions: Definitions) -> None:
        self.definitions = definitions
        self.module = tvm.IRModule()
        self.lists = RowLists(self.module)
        self.globals: dict[str, relay.GlobalVar] = {}

    def resolve(self, roots: list[Expr]) -> list[Expr]:
        """``roots`` with composites spliced in, their kernels chosen, and calls of control flow
        going to functions."""
        roots = self._with_own_kernels(inline_composites(roots))
        table: dict[Expr, Expr] = {}
        for expr in post_order(roots):
            new = rebuild(expr, table.__getitem__)
            if self.definitions.of(expr) is not None:
                new = relay.Call(self._function(expr), new.args, span=new.span)
            table[expr] = new
        return [table[root] for root in roots]

    def _with_own_kernels(self, roots: list[Expr]) -> list[Expr]:
        """As for straight lines. Products take transposed operands as they are, so no iteration
        transposes what it has or holds a transposed weight."""
        calls = set(self.definitions.variables)
        free = [v for v in relay.analysis.free_vars(relay.Tuple(roots)) if v.name_hint not in calls]
        typed = self.definitions.graph(free, roots)
        chosen = use_own_kernels(typed.results)
        return substitute(chosen, dict(zip(typed.params, free, strict=True)))

    def _function(self, call: relay.Call) -> relay.GlobalVar:
        name = call.op.name_hint
        if name in self.globals:
            return self.globals[name]
        self.globals[name] = relay.GlobalVar(name)
        definition, kind = self.definitions.table[name], call.op.checked_type
        if isinstance(definition, Branch):
            function = self._branch(definition, kind)
        elif isinstance(definition, AugmentedBranch):
            function = self._augmented_branch(definition, kind)
        elif isinstance(definition, Loop):
            function = self._loop(name, definition, kind)
        elif isinstance(definition, TreeFold | AugmentedTreeFold):
            function = lower_tree_fold(self, name, definition, kind)
        else:
            function = self._augmented_loop(name, definition, kind)
        self.module[self.globals[name]] = function
        return self.globals[name]

    # Branches

    def _branch(self, branch: Branch, kind: Type) -> relay.Function:
        condition = relay.Var("condition", CONDITION)
        params = [relay.Var("x", t) for t in kind.arg_types[1:]]
        arms = []
        for graph in (branch.then, branch.other):
            (arm,) = self._bound(graph, params, [relay.Tuple(graph.results)])
            arms.append(arm)
        body = relay.If(condition, *arms)
        return relay.Function([condition, *params], body, kind.ret_type)

    def _augmented_branch(self, augmented: AugmentedBranch, kind: Type) -> relay.Function:
        condition = relay.Var("condition", CONDITION)
        params = [relay.Var("x", t) for t in kind.arg_types[1:]]
        back = kind.ret_type.fields[-1]
        branch, arms = augmented.branch, []
        for graph, gradients in (
            (branch.then, augmented.then_gradients),
            (branch.other, augmented.other_gradients),
        ):
            grads = [
                g if g is not None else filled(0, t)
                for g, t in zip(gradients, back.ret_type.fields, strict=True)
            ]
            bound = self._bound(graph, params, [*graph.results, *grads])
            results, grads = bound[: len(graph.results)], bound[len(graph.results) :]
            seeds = [relay.Var("dy", t) for t in back.arg_types]
            grads = substitute(grads, dict(zip(augmented.seeds, seeds, strict=True)))
            pullback = relay.Function(seeds, relay.Tuple(grads), back.ret_type)
            arms.append(in_order(results, partial(_tuple_with, pullback)))
        body = relay.If(condition, *arms)
        return relay.Function([condition, *params], body, kind.ret_type)

    def _bound(self, graph: Graph, params: list[relay.Var], roots: list[Expr]) -> list[Expr]:
        return substitute(self.resolve(roots), dict(zip(graph.params, params, strict=True)))

    # Loops

    def _loop(self, name: str, loop: Loop, kind: Type) -> relay.Function:
        frame = _Frame(loop, kind)
        step = relay.GlobalVar(f"{name}_step")
        row_types = [e.checked_type for e in loop.next_rows]
        lists = [self.lists.of(t) for t in row_types]
        state_types = [v.checked_type for v in loop.state_params]
        result = relay.TupleType(state_types + [rows.type for rows in lists])
        values = frame.bind(self.resolve(loop.body.results))

        def again(new: list[Expr]) -> Expr:
            rest = relay.Call(step, frame.next_arguments(new[0], new[1 : 1 + loop.states]))
            if not lists:
                return rest
            out = relay.Var("rest")
            fields = [relay.TupleGetItem(out, i) for i in range(loop.states + len(lists))]
            for k, rows in enumerate(lists):
                place = loop.states + k
                fields[place] = rows.push(new[1 + place], fields[place])
            return relay.Let(out, rest, relay.Tuple(fields))

        done = relay.Tuple([*frame.states, *(rows.empty() for rows in lists)])
        body = relay.If(frame.goes_on(), in_order(values, again), done)
        self.module[step] = relay.Function(frame.step_params, body, result)
        out = relay.Var("out")
        fields = [relay.TupleGetItem(out, i) for i in range(loop.states)]
        for k, rows in enumerate(lists):
            stacked = rows.stack(relay.TupleGetItem(out, loop.states + k))
            fields.append(_sized(stacked, kind.ret_type.fields[loop.states + k]))
        start = relay.Call(step, frame.first_arguments())
        return relay.Function(
            frame.params, relay.Let(out, start, relay.Tuple(fields)), kind.ret_type
        )

    def _augmented_loop(self, name: str, augmented: AugmentedLoop, kind: Type) -> relay.Function:
        return _AugmentedLoopFunction(self, name, augmented, kind).build()


class _Frame:
    """Parameters of a loop's functions: those of its call, and the number of the iteration."""

    def __init__(self, loop: Loop, kind: Type) -> None:
        self.loop = loop
        self.count = relay.Var("count", INDEX)
        self.condition = relay.Var("condition", CONDITION)
        rest = [relay.Var("x", t) for t in kind.arg_types[2:]]
        self.states = rest[: loop.states]
        self.scans = rest[loop.states : loop.states + loop.scans]
        self.captured = rest[loop.states + loop.scans :]
        self.params = [self.count, self.condition, *rest]
        self.index = relay.Var("i", INDEX)
        self.invariants: list[Expr] = []  # computed once, from the captured values
        self.invariant_params: list[relay.Var] = []
        rows = [row_of(scan, self.index) for scan in self.scans]
        values = [self.index, self.condition, *self.states, *rows, *self.captured]
        self.binding = dict(zip(loop.body.params, values, strict=True))

    @property
    def step_params(self) -> list[relay.Var]:
        return [self.index, *self.params, *self.invariant_params]

    def bind(self, roots: list[Expr]) -> list[Expr]:
        """What a step computes, over its parameters; once for each frame."""
        captured = self.loop.captured_params
        hoisted, types = invariants(roots, captured)
        self.invariant_params = [relay.Var("invariant", t) for t in types]
        self.invariants = substitute(hoisted, self.binding)
        binding = {**self.binding, **dict(zip(hoisted, self.invariant_params, strict=True))}
        return substitute(roots, binding)

    def first_arguments(self) -> list[Expr]:
        return [relay.const(0, "int64"), *self.params, *self.invariants]

    def goes_on(self) -> Expr:
        return relay.logical_and(relay.less(self.index, self.count), self.condition)

    def next_arguments(self, condition: Expr, states: list[Expr]) -> list[Expr]:
        after = relay.add(self.index, relay.const(1, "int64"))
        rest = [*self.scans, *self.captured, *self.invariant_params]
        return [after, self.count, condition, *states, *rest]


class _AugmentedLoopFunction:
    """Writes the functions of one augmented loop."""

    def __init__(self, lowering: Any, name: str, augmented: AugmentedLoop, kind: Type) -> None:
        self.lowering, self.augmented, self.kind = lowering, augmented, kind
        self.loop = augmented.loop
        self.frame = _Frame(self.loop, kind)
        self.step = relay.GlobalVar(f"{name}_step")
        self.outer = kind.ret_type.fields[-1]  # type of the pullback that the caller gets
        make = lowering.lists.of
        self.rows = [make(e.checked_type) for e in self.loop.next_rows]
        self.scan_rows = [make(self.loop.row_params[i].checked_type) for i in augmented.scans]
        states, scans = len(augmented.states), len(augmented.scans)
        types = list(self.outer.ret_type.fields)
        self.state_types, self.captured_types = types[:states], types[states + scans :]
        self.inner = relay.FuncType(  # type of the pullback of a step: lists of rows instead
            self.outer.arg_types,
            relay.TupleType(
                [*self.state_types, *(r.type for r in self.scan_rows), *self.captured_types]
            ),
        )

    def build(self) -> relay.Function:
        loop, frame = self.loop, self.frame
        states = [v.checked_type for v in loop.state_params]
        result = relay.TupleType([*states, *(r.type for r in self.rows), self.inner])
        iteration = self._iteration()
        body = relay.If(frame.goes_on(), iteration, self._end())
        self.lowering.module[self.step] = relay.Function(frame.step_params, body, result)
        out = relay.Var("out")
        fields = [relay.TupleGetItem(out, i) for i in range(loop.states)]
        for k, rows in enumerate(self.rows):
            stacked = rows.stack(relay.TupleGetItem(out, loop.states + k))
            fields.append(_sized(stacked, self.kind.ret_type.fields[loop.states + k]))
        inner = relay.Var("pullback")
        fields.append(self._outer_pullback(inner))
        start = relay.Call(self.step, frame.first_arguments())
        whole = relay.Let(
            inner, relay.TupleGetItem(out, len(result.fields) - 1), relay.Tuple(fields)
        )
        whole = relay.Let(out, start, whole)
        return relay.Function(frame.params, whole, self.kind.ret_type)

    def _iteration(self) -> Expr:
        loop, gradients = self.loop, self.augmented.gradients
        made = [g for g in gradients if g is not None]
        roots = self.lowering.resolve([*loop.body.results, *made])
        bound = self.frame.bind(roots)
        count = len(loop.body.results)
        found = iter(bound[count:])
        self.gradients = [None if g is None else next(found) for g in gradients]
        return in_order(bound[:count], self._then_rest)

    def _then_rest(self, new: list[Expr]) -> Expr:
        loop = self.loop
        arguments = self.frame.next_arguments(new[0], new[1 : 1 + loop.states])
        out = relay.Var("rest")
        fields = [relay.TupleGetItem(out, i) for i in range(loop.states)]
        for k, rows in enumerate(self.rows):
            place = loop.states + k
            fields.append(rows.push(new[1 + place], relay.TupleGetItem(out, place)))
        behind = relay.TupleGetItem(out, len(fields))
        # Taken out of the tuple before the closure is made: it must not capture all of the tuple.
        pullback = relay.Var("pullback")
        fields.append(self._pullback(pullback))
        whole = relay.Let(pullback, behind, relay.Tuple(fields))
        return relay.Let(out, relay.Call(self.step, arguments), whole)

    def _pullback(self, behind: Expr) -> relay.Function:
        """The iterations after this one first, then this one."""
        augmented = self.augmented
        seeds = [relay.Var("dy", t) for t in self.outer.arg_types]
        after = relay.Var("after")
        count = len(augmented.states)
        values = [relay.TupleGetItem(after, i) for i in range(count)]
        values += [row_of(s, self.frame.index) for s in seeds[count:]]
        variables = [*augmented.state_seeds, *augmented.row_seeds]
        made = [g for g in self.gradients if g is not None]
        bound = iter(substitute(made, dict(zip(variables, values, strict=True))))
        grads = [None if g is None else next(bound) for g in self.gradients]
        fields = []
        for i, (grad, kind) in enumerate(zip(grads, self.outer.ret_type.fields, strict=True)):
            before = relay.TupleGetItem(after, i)
            if i < count:
                fields.append(filled(0, kind) if grad is None else grad)
            elif i < count + len(self.scan_rows):
                rows = self.scan_rows[i - count]
                fields.append(rows.push(filled(0, rows.row) if grad is None else grad, before))
            else:
                fields.append(before if grad is None else relay.add(before, grad))
        body = relay.Let(after, relay.Call(behind, seeds), relay.Tuple(fields))
        return relay.Function(seeds, body, self.inner.ret_type)

    def _end(self) -> Expr:
        """After the last iteration: the adjoints of the states come back as they are."""
        seeds = [relay.Var("dy", t) for t in self.outer.arg_types]
        fields = [
            *seeds[: len(self.augmented.states)],
            *(self._rows_not_reached(k) for k in range(len(self.scan_rows))),
            *(filled(0, t) for t in self.captured_types),
        ]
        pullback = relay.Function(seeds, relay.Tuple(fields), self.inner.ret_type)
        lists = [rows.empty() for rows in self.rows]
        return relay.Tuple([*self.frame.states, *lists, pullback])

    def _rows_not_reached(self, k: int) -> Expr:
        """Gradients of the rows behind the last one that the loop has taken: zeros."""
        scan, rows = self.frame.scans[self.augmented.scans[k]], self.scan_rows[k]
        first = scan.type_annotation.shape[0]
        if isinstance(first, tvm.tir.Any):
            shape = relay.shape_of(scan, "int64")
            count = relay.take(shape, relay.const(0, "int64"), mode="clip")
        elif int(first) == self.loop.length:
            return rows.empty()
        else:
            count = relay.const(int(first), "int64")
        return rows.zeros(relay.subtract(count, self.frame.index))

    def _outer_pullback(self, inner: Expr) -> relay.Function:
        """The step's pullback with its lists of rows stacked."""
        seeds = [relay.Var("dy", t) for t in self.outer.arg_types]
        out = relay.Var("gradients")
        fields = []
        for i, kind in enumerate(self.outer.ret_type.fields):
            field = relay.TupleGetItem(out, i)
            k = i - len(self.augmented.states)
            if 0 <= k < len(self.scan_rows):
                field = _sized(self.scan_rows[k].stack(field), kind)
            fields.append(field)
        body = relay.Let(out, relay.Call(inner, seeds), relay.Tuple(fields))
        return relay.Function(seeds, body, self.outer.ret_type)


def _tuple_with(last: Expr, names: list[Expr]) -> Expr:
    return relay.Tuple([*names, last])


def _sized(tensor: Expr, kind: Type) -> Expr:
    """``tensor`` under the type ``kind``, if that says more."""
    if any(isinstance(n, tvm.tir.Any) for n in kind.shape):
        return tensor
    return relay.reshape(tensor, [int(n) for n in kind.shape])
