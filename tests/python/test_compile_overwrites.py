"""Which updates run in place, and that they change nothing but memory."""

import numpy as np
import pytest
import training_run
from onnx_models import ModelMaker
from tvm import relay

import tvm_dtr
from tvm_dtr import models
from tvm_dtr.compile.overwrites import is_elementwise
from tvm_dtr.relay_graph import infer_function

ROWS, WIDTH = 128, 96


def transposing():
    """Weights that the backward pass reads after their gradient is final, one of them twice."""
    rng = np.random.default_rng(3)
    maker = ModelMaker()
    w = maker.weight("w", rng.normal(size=(WIDTH, WIDTH)) * 0.1)
    h = maker.node("Tanh", [maker.node("MatMul", [maker.input("x", (ROWS, WIDTH)), w])])
    h = maker.node("Tanh", [maker.node("MatMul", [h, w])])
    h = maker.node(
        "Tanh", [maker.node("MatMul", [h, maker.weight("v", rng.normal(size=(WIDTH, WIDTH)))])]
    )
    return maker.model(h)


@pytest.fixture(scope="module")
def program():
    return tvm_dtr.build(transposing(), loss="mse", optimizer=tvm_dtr.AdamW(0.01))


def batch(step):
    rng = np.random.default_rng(step)
    return {n: rng.normal(size=(ROWS, WIDTH)).astype("float32") for n in ("x", "target")}


def test_every_state_is_updated_in_place(program):
    graph = program.graph
    names = dict(
        zip(graph.parameters, [s.name for s in [*program.inputs, *program.state]], strict=True)
    )
    marked = {names[graph.ops[op].inputs[index]] for op, index in graph.overwrites}
    assert marked == {spec.name for spec in program.state}


def test_nothing_reads_an_old_value_after_its_update(program):
    graph = program.graph
    order = [index for kind, index in graph.instructions if kind == "op"]
    assert sorted(order) == list(range(len(graph.ops)))
    for op, index in graph.overwrites:
        old = graph.tensors[graph.ops[op].inputs[index]].storage
        later = order[order.index(op) + 1 :]
        reads = {graph.tensors[t].storage for o in later for t in graph.ops[o].inputs}
        assert old not in reads


def test_the_order_stays_one_that_can_run(program):
    graph, alive = program.graph, set(program.graph.parameters)
    for instruction in graph.instructions:
        assert set(graph.tensors_read(instruction)) <= alive
        alive.update(graph.tensors_defined(instruction))
        if instruction[0] == "kill":
            alive.remove(instruction[1])
    assert alive == set(graph.results)


@pytest.mark.parametrize("budget", [None, "99%", "smallest"])
def test_steps_are_bitwise_those_out_of_place(program, budget):
    if budget == "smallest":
        budget = program.replay.smallest_budget(policy="dtr", steps=2)
    in_place = tvm_dtr.VirtualMachine(program, memory_budget=budget, policy="dtr")
    plain = tvm_dtr.VirtualMachine(program, in_place=False)
    for step in range(4):
        got, wanted = in_place.step(**batch(step)), plain.step(**batch(step))
        assert got["loss"].tobytes() == wanted["loss"].tobytes()
        training_run.same_bits(dict(in_place.parameters), dict(plain.parameters))
        in_place.validate()
    counters = in_place.counters()
    assert counters["overwrites"] + counters["copies_on_write"] == len(program.state)
    assert plain.counters()["overwrites"] == 0
    if budget is None:
        assert counters["copies_on_write"] == 0


def test_old_and_new_are_not_there_together():
    """With few rows and many layers parameters and state are nearly all there is."""
    rng = np.random.default_rng(3)
    maker = ModelMaker()
    h = maker.input("x", (4, 64))
    for layer in range(16):
        w = maker.weight(f"w{layer}", rng.normal(size=(64, 64)) / 8)
        h = maker.node("Tanh", [maker.node("MatMul", [h, w])])
    program = tvm_dtr.build(maker.model(h), loss="mse", optimizer=tvm_dtr.AdamW(0.01))
    machines = [tvm_dtr.VirtualMachine(program, in_place=flag) for flag in (True, False)]
    for vm in machines:
        for _ in range(3):
            vm.step(x=np.ones((4, 64), "float32"), target=np.ones((4, 64), "float32"))
    in_place, plain = (vm.stats["peak_bytes"] for vm in machines)
    state = sum(np.prod(s.shape) * 4 for s in program.state if s.shape)
    assert in_place <= plain - 0.9 * state
    assert abs(program.unbudgeted_peak_bytes - in_place) <= 16384  # what shares pages
    assert abs(program.out_of_place().unbudgeted_peak_bytes - plain) <= 16384


def test_in_place_saves_parameters_and_state_of_a_gpt():
    """AdamW, against a gradient step followed by an update step that makes all state anew."""
    model = models.gpt(batch=1, seed=0, layers=2, width=64, context=16, vocabulary=64)
    peaks, ends = {}, []
    for in_place, options in ((True, {}), (False, {}), (False, {"return_gradients": True})):
        program = tvm_dtr.build(model, loss="cross_entropy", optimizer=tvm_dtr.AdamW(), **options)
        vm = tvm_dtr.VirtualMachine(program, in_place=in_place)
        tokens = np.random.default_rng(0).integers(0, 64, (2, 1, 16))
        for x in tokens:
            vm.step(x=x, labels=x)
        peaks[in_place, bool(options)] = vm.stats["peak_bytes"]
        ends.append({name: array.tobytes() for name, array in vm.parameters.items()})
    assert ends[0] == ends[1]  # gradients that are returned are not fused into their updates
    state = sum(array.nbytes for array in vm.parameters.values())
    assert peaks[True, False] + state <= peaks[False, True]
    # Of its own updates no step saves more; this one less by what it holds beside the state.
    assert 0.7 * state < peaks[False, False] - peaks[True, False] <= 1.01 * state


def test_a_stopped_step_goes_on_or_is_set_right(program):
    vm = tvm_dtr.VirtualMachine(program)
    reference = tvm_dtr.VirtualMachine(program, in_place=False)
    start = dict(vm.parameters)
    for _ in range(2):
        vm.step(**batch(0))
        reference.step(**batch(0))
    tight = program.replay.lower_bound() - 4096
    stopped = 0
    for budget in range(tight, program.unbudgeted_peak_bytes, 2048):
        old = vm.set_budget(max(budget, vm.counters()["active_bytes"]))
        try:
            vm.step(**batch(1))
        except tvm_dtr.BudgetError:
            torn = vm.counters()["overwrites"] > 0
            stopped += torn
            if torn:
                with pytest.raises(tvm_dtr.UsageError, match="some of its parameters were updated"):
                    vm.step(**batch(1))
            vm.set_budget(old)
            break
    vm.set_parameters(start)
    fresh = tvm_dtr.VirtualMachine(program, in_place=False)
    training_run.same_bits(dict(vm.parameters), dict(fresh.parameters))
    vm.step(**batch(1))
    fresh.step(**batch(1))
    training_run.same_bits(dict(vm.parameters), dict(fresh.parameters))


def test_what_the_caller_invokes_is_never_overwritten(program):
    import tvm

    vm = tvm_dtr.VirtualMachine(program)
    values = [batch(0)["x"], batch(0)["target"], np.array(0.01)]
    inputs = [tvm.nd.array(v) for v in values]
    state = [tvm.nd.array(program.initial_state[s.name]) for s in program.state]
    before = [s.numpy() for s in state]
    first = vm.invoke("main", *inputs, *state)
    assert all(np.array_equal(a, s.numpy()) for a, s in zip(before, state, strict=True))
    again = vm.invoke("main", *inputs, *state)
    for a, b in zip(first, again, strict=True):
        assert a.numpy().tobytes() == b.numpy().tobytes()


def fused(make, *shapes):
    variables = [relay.var(f"v{i}", shape=shape) for i, shape in enumerate(shapes)]
    return infer_function(relay.Function(variables, make(*variables)))


def test_what_is_elementwise():
    def update(p, g):
        return p - relay.const(0.1) * relay.sqrt(g)

    assert is_elementwise(fused(update, (4, 3), (4, 3)), 0)
    assert is_elementwise(fused(update, (4, 3), (4, 3)), 1)
    assert is_elementwise(fused(update, (4, 3), (3,)), 0)
    assert not is_elementwise(fused(update, (4, 3), (3,)), 1)  # each element for several others
    assert not is_elementwise(fused(lambda p: relay.transpose(p) + p, (3, 3)), 0)
    assert not is_elementwise(fused(lambda p: p - relay.sum(p), (4, 3)), 0)
    assert not is_elementwise(fused(lambda p: relay.reshape(p, (3, 4)), (4, 3)), 0)
    assert not is_elementwise(fused(lambda p: relay.Tuple([p + p, p]), (4, 3)), 0)
