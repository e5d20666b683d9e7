"""tvm_dtr/compile/recompute.py: what is computed again, what is not, and that results agree."""

import numpy as np
import pytest
from random_steps import as_step, random_step, run_stock
from tvm import relay

from tvm_dtr.compile import compile_step
from tvm_dtr.compile.fuse import fuse
from tvm_dtr.compile.linearize import linearize

SHAPE = (16, 32, 4)  # 8 KiB
BYTES = 8192


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TVM_DTR_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def variables(*names, shape=SHAPE):
    return [relay.var(name, shape=shape) for name in names]


def softmax(x):
    """An op that nothing is fused with."""
    return relay.nn.softmax(x)


def step_of(results, params):
    return as_step(relay.Function(list(params), relay.Tuple(list(results))))


def graphs(step):
    """Without and with recomputing."""
    return [linearize(fuse(step.function), recompute).graph for recompute in (False, True)]


def held(graph):
    """Bytes that are saved for later while the last softmax of the long way runs."""
    kernels = [op.kernel for op in graph.ops]
    softmaxes = [i for i, kernel in enumerate(kernels) if kernel == max(kernels, key=kernels.count)]
    here = max(graph.instructions.index(("op", op)) for op in softmaxes)
    before, after = graph.instructions[:here], graph.instructions[here + 1 :]
    made = {t for i in before for t in graph.tensors_defined(i)}
    read = {t for i in after for t in graph.tensors_read(i)}
    return sum(graph.storages[s] for s in {graph.tensors[t].storage for t in made & read})


def long_way(x, steps=4):
    for _ in range(steps):
        x = softmax(x)
    return x


def forward_and_backward(cheap, saved=True, opaque_user=False):
    """A value ``cheap(x, v)`` that the forward pass reads and, much later, the backward pass; so is
    x, if it is saved in any case."""
    x, v = relay.var("x", shape=SHAPE), relay.var("v", shape=(32, 1))
    anchor = softmax(x)
    value = cheap(anchor, v)
    middle = long_way(softmax(value) if opaque_user else relay.tanh(value))
    late = relay.exp(middle) * value
    results = [relay.sum(late)]
    if saved:
        results.append(relay.sum(relay.sqrt(late) * anchor))
    return step_of(results, [x, v])


def affine(x, v):
    return (x - v) * v + relay.const(1.0)


def test_a_cheap_value_is_not_saved():
    without, with_it = graphs(forward_and_backward(affine))
    assert (held(without), held(with_it)) == (2 * BYTES, BYTES)
    assert len(with_it.ops) == len(without.ops) - 1
    assert len(with_it.storages) == len(with_it.tensors) == len(without.storages) - 1


def test_an_op_that_does_not_fuse_reads_it_early_and_it_is_gone():
    without, with_it = graphs(forward_and_backward(affine, opaque_user=True))
    assert (held(without), held(with_it)) == (2 * BYTES, BYTES)
    assert len(with_it.ops) == len(without.ops)


@pytest.mark.parametrize(
    "cheap",
    [
        lambda x, v: relay.exp(x * v),  # a call that is not cheap
        lambda x, v: relay.transpose(x * v, (0, 1, 2)) + relay.sum(x, axis=2, keepdims=True),
    ],
    ids=["exp", "sum"],
)
def test_what_is_not_cheap_is_saved(cheap):
    step = forward_and_backward(cheap)
    without, with_it = graphs(step)
    assert held(with_it) == held(without) == 2 * BYTES


def test_it_is_saved_where_its_operand_is_not():
    without, with_it = graphs(forward_and_backward(affine, saved=False))
    assert with_it.to_dict() == without.to_dict()


def test_it_is_saved_where_its_last_reader_needs_it_in_memory():
    x, v = relay.var("x", shape=SHAPE), relay.var("v", shape=(32, 1))
    anchor = softmax(x)
    value = affine(anchor, v)
    middle = long_way(relay.tanh(value))
    late = softmax(relay.reshape(value, (16, 128)))
    results = [relay.sum(middle), relay.sum(late), relay.sum(relay.sqrt(anchor) * middle)]
    without, with_it = graphs(step_of(results, [x, v]))
    assert held(with_it) == held(without) == 2 * BYTES


def test_results_of_the_step_stay():
    x, v = relay.var("x", shape=SHAPE), relay.var("v", shape=(32, 1))
    anchor = softmax(x)
    value = affine(anchor, v)
    late = relay.exp(long_way(relay.tanh(value))) * value + anchor
    without, with_it = graphs(step_of([value, relay.sum(late)], [x, v]))
    assert with_it.to_dict() == without.to_dict()


def test_small_tensors_are_left_alone():
    x, v = relay.var("x", shape=(4, 4, 4)), relay.var("v", shape=(4, 1))
    anchor = softmax(x)
    value = affine(anchor, v)
    late = relay.exp(long_way(relay.tanh(value))) * value + anchor
    without, with_it = graphs(step_of([relay.sum(late)], [x, v]))
    assert with_it.to_dict() == without.to_dict()


def close(left, right):
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("opaque_user", [False, True])
def test_results_agree(opaque_user):
    step = forward_and_backward(affine, opaque_user=opaque_user)
    programs = [compile_step(step, recompute=recompute) for recompute in (False, True)]
    assert len({len(p.graph.ops) for p in programs}) == (1 if opaque_user else 2)
    close(*(run_stock(program.executable, step) for program in programs))


def test_a_reader_in_another_shape_and_a_reduction():
    x, v = relay.var("x", shape=SHAPE), relay.var("v", shape=(32, 1))
    anchor = softmax(x)
    value = affine(anchor, v)
    middle = long_way(relay.tanh(value))
    flat = relay.reshape(value, (512, 4))
    late = relay.sum(relay.exp(relay.reshape(middle, (512, 4))) * flat, axis=0)
    step = step_of([late, relay.sum(relay.sqrt(anchor) * middle)], [x, v])
    without, with_it = graphs(step)
    assert (held(without), held(with_it)) == (2 * BYTES, BYTES)
    programs = [compile_step(step, recompute=recompute) for recompute in (False, True)]
    close(*(run_stock(program.executable, step) for program in programs))


@pytest.mark.parametrize("seed", range(4))
def test_random_programs_agree(seed, monkeypatch):
    monkeypatch.setattr("tvm_dtr.compile.recompute._LEAST_BYTES", 0)
    step = random_step(seed, calls=40)
    programs = [compile_step(step, recompute=recompute) for recompute in (False, True)]
    close(*(run_stock(program.executable, step) for program in programs))
