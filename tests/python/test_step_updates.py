"""Gradient accumulation and loss scaling: which steps update, and by what."""

import numpy as np
import pytest
from onnx_models import ModelMaker, compiled
from test_optim import GOLDEN, NAMES, network, next_state

import tvm_dtr
from tvm_dtr.builder import make_training_step
from tvm_dtr.errors import UsageError
from tvm_dtr.optim import SGD, AdamW

MICRO, COUNT = 4, 3


def small_network(batch):
    rng = np.random.default_rng(0)
    maker = ModelMaker()
    w1, w2 = (maker.weight(f"w{i}", rng.normal(size=s)) for i, s in ((1, (6, 8)), (2, (8, 3))))
    hidden = maker.node("Tanh", [maker.node("Gemm", [maker.input("x", (batch, 6)), w1])])
    return maker.model(maker.node("Gemm", [hidden, w2], name="y"))


def accumulating(**options):
    return tvm_dtr.build(
        small_network(MICRO), loss="mse", optimizer=AdamW(0.01), accumulate=COUNT, **options
    )


def batches(size, count):
    rng = np.random.default_rng(1)
    x, target = (rng.normal(size=(size * count, n)).astype("float32") for n in (6, 3))
    cuts = [slice(i * size, (i + 1) * size) for i in range(count)]
    return [{"x": x[c], "target": target[c]} for c in cuts]


def test_micro_batches_are_one_large_batch():
    program = accumulating(clip_norm=0.5)
    assert program.accumulate == COUNT
    vm = tvm_dtr.VirtualMachine(program)
    whole = compiled(small_network(MICRO * COUNT), optimizer=AdamW(0.01), clip_norm=0.5)
    start = dict(vm.parameters)
    for number, batch in enumerate(batches(MICRO, 2 * COUNT), 1):
        vm.step(**batch)
        if number < COUNT:  # nothing but the sums of gradients moves before
            assert all((vm.parameters[n] == start[n]).all() for n in ("w1", "w2", "exp_avg:w1"))
    for batch in batches(MICRO * COUNT, 2):
        next_state(whole, whole(**batch))
    assert not np.array_equal(vm.parameters["w1"], start["w1"])
    for name in ("w1", "w2", "exp_avg:w1", "exp_avg_sq:w2", "optimizer_step"):
        np.testing.assert_allclose(vm.parameters[name], whole.state[name], rtol=1e-4, atol=1e-6)


def test_accumulation_is_bitwise_the_same_in_place_and_under_a_budget(tmp_path):
    accumulating().save(tmp_path / "p.tdtr")
    program = tvm_dtr.load(tmp_path / "p.tdtr")
    assert program.accumulate == COUNT
    machines = [
        tvm_dtr.VirtualMachine(program, **options)
        for options in ({"in_place": False}, {}, {"memory_budget": "160KiB"})
    ]
    for vm in machines:
        for batch in batches(MICRO, COUNT + 1):
            vm.step(**batch)
    assert machines[1].counters()["overwrites"] and not machines[1].counters()["copies_on_write"]
    wanted, *others = ({n: v.tobytes() for n, v in vm.parameters.items()} for vm in machines)
    assert all(state == wanted for state in others)


def test_the_schedule_counts_updates():
    vm = tvm_dtr.VirtualMachine(accumulating())
    seen = []
    trainer = tvm_dtr.Trainer(
        vm,
        batches(MICRO, 2 * COUNT),
        schedule=lambda update: seen.append(update) or 0.01,
        prefetch=0,
    )
    assert trainer.run()["step"] == 2 * COUNT
    assert seen == [0] * COUNT + [1] * COUNT


@pytest.mark.parametrize("step", [1, 5])
def test_a_run_resumed_between_two_updates_is_the_uninterrupted_one(tmp_path, step):
    class Stop(tvm_dtr.Callback):
        def on_step(self, trainer, record, outputs):
            if record["step"] == step:
                trainer.stop()

    program = accumulating(clip_norm=0.5)
    arrays = {k: np.concatenate([b[k] for b in batches(MICRO, 4)]) for k in ("x", "target")}

    def state(folder=None, resume=False, **options):
        vm = tvm_dtr.VirtualMachine(program, memory_budget=options.pop("budget", None))
        run = tvm_dtr.Trainer(vm, arrays, epochs=2, checkpoint_dir=folder, seed=4, **options)
        run.run(resume=resume)
        return dict(vm.parameters), run.position.step

    stopped, at = state(tmp_path, callbacks=[Stop()])
    assert at == step and stopped["accumulated"] == step % COUNT != 0
    resumed, at = state(tmp_path, resume=True, budget="100%")
    whole, _ = state()
    assert at == 8 and whole["accumulated"] == 8 % COUNT
    assert {n: v.tobytes() for n, v in resumed.items()} == {
        n: v.tobytes() for n, v in whole.items()
    }


@pytest.mark.parametrize(
    ("low", "scale", "most"), [("float16", 1024.0, 1e-3), ("bfloat16", None, 8e-3)]
)
def test_50_steps_in_mixed_precision_stay_near_pytorchs_in_float32(low, scale, most):
    run = compiled(network(), optimizer=SGD(0.1), mixed_precision=low, loss_scale=scale)
    assert all(run.state[name].dtype == "float32" for name in NAMES)
    for x, target in zip(GOLDEN["x"], GOLDEN["target"], strict=True):
        next_state(run, run(x=x, target=target))
    errors = []
    for name in NAMES:
        wanted = GOLDEN[f"sgd/50/{name}"]
        errors.append(np.linalg.norm(run.state[name] - wanted) / np.linalg.norm(wanted))
    assert 1e-6 < max(errors) < most  # not float32 in disguise


def test_an_overflow_leaves_the_update_out_and_halves_the_scale():
    run = compiled(network(), optimizer=AdamW(0.01), mixed_precision="float16")
    assert run.state["loss_scale"] == 2**16
    feeds = {"x": GOLDEN["x"][0], "target": GOLDEN["target"][0]}
    run.state["loss_scale"] = np.array(2.0**100, "float32")
    got = run(**feeds)
    changed = [n for n in run.state if not np.array_equal(got[n], run.state[n])]
    assert changed == ["loss_scale"]
    assert got["loss_scale"] == 2.0**99
    run.state["loss_scale"] = np.array(1024, "float32")
    run.state["good_updates"] = np.array(1999, "float32")
    got = run(**feeds)
    assert (got["loss_scale"], got["good_updates"], got["optimizer_step"]) == (2048, 0, 1)
    assert not np.array_equal(got["w1"], run.state["w1"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "accumulate 0: expected a whole number of 1 or more"),
        ({"loss_scale": -1}, "loss_scale -1: expected 'dynamic', a number > 0, or None"),
        ({"accumulate": 2, "optimizer": None}, "accumulate needs an optimizer"),
        ({"mixed_precision": "float8"}, "mixed_precision 'float8': expected one of float16, bflo"),
    ],
)
def test_refusals(options, message):
    options = {"optimizer": SGD(0.1)} | options
    with pytest.raises(UsageError, match=message):
        make_training_step(network(), loss="mse", **options)
