"""Rows that a loop makes, as a list, and the list as one tensor.

How many rows there will be is known at run time only, so a loop collects them in an algebraic data
type. Neighbours are then joined in pairs until one tensor is left: each row is copied log2(n)
times, and no kernel depends on n.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relay
from tvm.relay import adt

from ..relay_graph import Expr
from .definitions import Type, stacked_type


@dataclass(frozen=True)
class RowList:
    """The list type of one kind of row (``row``: its tensor type)."""

    row: Type
    type: Type
    nil: adt.Constructor
    cons: adt.Constructor
    stacking: relay.GlobalVar
    zeroing: relay.GlobalVar

    def empty(self) -> Expr:
        return self.nil()

    def push(self, row: Expr, rest: Expr) -> Expr:
        """``row`` before the rows of ``rest``."""
        return self.cons(relay.reshape(row, [1, *(int(n) for n in self.row.shape)]), rest)

    def zeros(self, count: Expr) -> Expr:
        """``count`` (int64) rows of zeros; none if it is negative."""
        return relay.Call(self.zeroing, [count, self.nil()])

    def stack(self, rows: Expr) -> Expr:
        """The rows as one tensor of shape (number of rows, \\*row.shape)."""
        return relay.Call(self.stacking, [rows])


class RowLists:
    """The list types of a module, each made when first asked for."""

    def __init__(self, module: tvm.IRModule) -> None:
        self.module = module
        self.made: dict[str, RowList] = {}

    def of(self, row: Type) -> RowList:
        key = "x".join([row.dtype, *(str(int(n)) for n in row.shape)])
        if key not in self.made:
            self.made[key] = self._make(row, key)
        return self.made[key]

    def _make(self, row: Type, key: str) -> RowList:
        name = relay.GlobalTypeVar(f"Rows_{key}")
        kind = relay.TypeCall(name, [])
        chunk = stacked_type(row, None)
        nil = adt.Constructor(f"NoRows_{key}", [], name)
        cons = adt.Constructor(f"Rows_{key}_", [chunk, kind], name)
        self.module[name] = adt.TypeData(name, [], [nil, cons])
        names = [relay.GlobalVar(f"{verb}_{key}") for verb in ("stack", "zero_rows")]
        rows = RowList(row, kind, nil, cons, *names)
        pairs = relay.GlobalVar(f"join_pairs_{key}")
        self.module[pairs] = _join_pairs(rows, pairs)
        self.module[rows.zeroing] = _zero_rows(rows)
        self.module[rows.stacking] = _stack(rows, pairs)
        return rows


def _join_pairs(rows: RowList, itself: relay.GlobalVar) -> relay.Function:
    """[a, b, c, d, e] -> [ab, cd, e]"""
    given, a, b = relay.Var("rows", rows.type), relay.Var("a"), relay.Var("b")
    rest, more = relay.Var("rest"), relay.Var("more")
    joined = relay.concatenate([a, b], axis=0)
    two = rows.cons(joined, relay.Call(itself, [more]))
    inner = adt.Match(
        rest,
        [
            adt.Clause(_cons(rows, b, more), two),
            adt.Clause(adt.PatternConstructor(rows.nil, []), rows.cons(a, rows.nil())),
        ],
    )
    body = adt.Match(
        given,
        [
            adt.Clause(_cons(rows, a, rest), inner),
            adt.Clause(adt.PatternConstructor(rows.nil, []), rows.nil()),
        ],
    )
    return relay.Function([given], body, rows.type)


def _zero_rows(rows: RowList) -> relay.Function:
    count, made = relay.var("count", shape=(), dtype="int64"), relay.Var("made", rows.type)
    shape = [int(n) for n in rows.row.shape]
    zero = relay.full(relay.const(0, rows.row.dtype), shape, rows.row.dtype)
    left = relay.subtract(count, relay.const(1, "int64"))
    again = relay.Call(rows.zeroing, [left, rows.push(zero, made)])
    body = relay.If(relay.greater(count, relay.const(0, "int64")), again, made)
    return relay.Function([count, made], body, rows.type)


def _stack(rows: RowList, pairs: relay.GlobalVar) -> relay.Function:
    given, a = relay.Var("rows", rows.type), relay.Var("a")
    rest, b, more = relay.Var("rest"), relay.Var("b"), relay.Var("more")
    empty = relay.full(
        relay.const(0, rows.row.dtype), [0, *(int(n) for n in rows.row.shape)], rows.row.dtype
    )
    again = relay.Call(rows.stacking, [relay.Call(pairs, [given])])
    inner = adt.Match(
        rest,
        [
            adt.Clause(adt.PatternConstructor(rows.nil, []), a),
            adt.Clause(_cons(rows, b, more), again),
        ],
    )
    body = adt.Match(
        given,
        [
            adt.Clause(_cons(rows, a, rest), inner),
            adt.Clause(adt.PatternConstructor(rows.nil, []), empty),
        ],
    )
    return relay.Function([given], body, stacked_type(rows.row, None))


def _cons(rows: RowList, head: relay.Var, tail: relay.Var) -> adt.PatternConstructor:
    return adt.PatternConstructor(rows.cons, [adt.PatternVar(head), adt.PatternVar(tail)])
