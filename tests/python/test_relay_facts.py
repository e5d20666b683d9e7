"""tvm_dtr/relay_facts: what is remembered of expressions, and for how long."""

import gc
import threading
import weakref

import pytest
import tvm
from tvm import relay

from tvm_dtr.relay_facts import address, children, name_of, remembered, remembering
from tvm_dtr.relay_graph import ExprMap


def call_of(x):
    return relay.add(x, relay.const(1.0))


class Asked:
    """A question that counts how often it is put."""

    def __init__(self):
        self.times = 0

    def __call__(self, expr):
        self.times += 1
        return self


def test_asks_once_inside_of_the_outermost_block():
    call, question = call_of(relay.var("x")), Asked()
    remembered("fact", call, question)
    with remembering():
        remembered("fact", call, question)
        with remembering():
            remembered("fact", call, question)
        remembered("fact", call, question)
    assert question.times == 2
    remembered("fact", call, question)
    assert question.times == 3


def test_an_answer_goes_with_the_block():
    call, question = call_of(relay.var("x")), Asked()
    with remembering():
        remembered("fact", call, question)
    alive = weakref.ref(question)
    del question
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_as_it_was(collects):
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with pytest.raises(ZeroDivisionError), remembering(), remembering():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


def test_another_handle_of_an_expression_is_the_same_one():
    x = relay.var("x")
    call, question = call_of(x), Asked()
    with remembering():
        remembered("fact", call.args[0], question)
        remembered("fact", call.args[0], question)
        assert address(call.args[0]) == address(x)
    assert question.times == 1


def test_addresses_are_not_used_again_while_remembered():
    """Expressions that nobody holds any more must not give their facts to new ones."""
    with remembering():
        for size in range(200):
            expr = relay.Tuple([relay.var(f"v{i}") for i in range(size % 7)])
            assert len(children(expr)) == size % 7
            del expr


def test_threads_do_not_share():
    call, question = call_of(relay.var("x")), Asked()

    def other():
        remembered("fact", call, question)
        remembered("fact", call, question)

    with remembering():
        remembered("fact", call, question)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert question.times == 3


def test_children_and_names():
    x, y = relay.var("x"), relay.var("y")
    call = relay.add(x, y)
    pair = relay.Tuple([call, x])
    function = relay.Function([x], x)
    assert [c.same_as(e) for c, e in zip(children(call), (x, y), strict=True)] == [True, True]
    assert children(pair)[0].same_as(call)
    assert children(relay.TupleGetItem(pair, 1)) == (pair,)
    assert children(x) == children(relay.const(1.0)) == ()
    assert name_of(call) == "add" and name_of(relay.Call(function, [y])) == ""


def test_children_of_a_call_of_a_closure_begin_with_it():
    pair = relay.Tuple([relay.var("x"), relay.var("f")])
    closure = relay.TupleGetItem(pair, 1)
    call = relay.Call(closure, [relay.var("y")])
    first, _ = children(call)
    assert first.same_as(closure)


def test_maps_tell_expressions_apart_by_identity():
    x, same_text = relay.var("x"), relay.var("x")
    known = ExprMap([(x, 1)])
    known[same_text] = 2
    assert (known[x], known[same_text]) == (1, 2)
    assert relay.var("x") not in known and known.get(relay.var("x"), 3) == 3
    assert tvm.ir.structural_equal(x, same_text, map_free_vars=True)
