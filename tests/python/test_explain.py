"""What a refusal tells: holders by role and node, and remedies that help."""

import re

import onnx
import pytest
from traced_run import traced_run

import tvm_dtr
from tvm_dtr.cli import main
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.explain import by_role, held_by_op
from tvm_dtr.models.tree_lstm import tree_lstm


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return traced_run(tmp_path_factory.getbasetemp())[0].with_name("r8.tdtr")


@pytest.fixture(scope="module")
def program(path):
    return tvm_dtr.load(path)


def test_what_an_op_holds_adds_up(program):
    holders = held_by_op(program, 0)
    graph = program.graph
    state = {graph.tensors[t].storage for t in [*graph.parameters, *graph.constants]}
    operands = [*graph.ops[0].inputs, *graph.ops[0].outputs]
    storages = state | {graph.tensors[t].storage for t in operands}
    workspace = graph.kernels[graph.ops[0].kernel].workspace_bytes
    expected = sum(graph.storages[s] for s in storages) + workspace
    assert sum(holder["bytes"] for holder in holders) == expected
    assert sum(by_role(holders).values()) == expected
    sizes = [holder["bytes"] for holder in holders]
    assert sizes == sorted(sizes, reverse=True)
    named = {holder["name"]: holder for holder in holders}
    assert named["conv1.weight"]["role"] == "parameters" and named["conv1.weight"]["pinned"]
    assert named["conv1 (Conv)"] == {
        **named["conv1 (Conv)"], "role": "activations", "pinned": False, "locks": 1,
    }  # fmt: skip


def test_the_remedies_of_a_refusal_help(program):
    with pytest.raises(tvm_dtr.BudgetError) as caught:
        tvm_dtr.VirtualMachine(program, memory_budget="30%")
    error = caught.value
    assert "\n" not in str(error)
    assert error.short_bytes == error.needed_budget_bytes - error.budget_bytes > 0
    first = error.remedies()[0]
    assert f"--memory-budget {error.needed_budget_bytes}" in first and "slowdown" in first
    tvm_dtr.VirtualMachine(program, memory_budget=error.needed_budget_bytes)


def test_the_command_line_tells_roles_and_remedies(path, capsys):
    assert main(["run", str(path), "--memory-budget", "30%", "--no-baseline"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("tvm-dtr: error: the memory budget of")
    assert any(line.split()[:2] == ["tensor", "role"] for line in told)
    assert any(line.startswith("in all: ") and "activations" in line for line in told)
    assert told[-1].startswith("remedy ")


def columns(told):
    """The table that follows "Held at this point": (tensor, role, why) of each row but the last."""
    start = next(i for i, line in enumerate(told) if line.split()[:2] == ["tensor", "role"]) + 2
    rows = [re.split(r"\s{2,}", line.strip()) for line in told[start:] if line.strip()]
    return [tuple(row[:3]) for row in rows if len(row) == 4]


def test_running_out_in_a_step_names_nodes_and_roles(program):
    """The VM's own account, for a budget that was lowered between steps."""
    vm = tvm_dtr.VirtualMachine(program)
    inputs = synthetic_inputs(program, 0)
    vm.step(**inputs)
    held = vm.counters()["active_bytes"]
    with pytest.raises(tvm_dtr.BudgetError) as caught:
        vm.set_budget(held + 2**15)
        vm.step(**inputs)
    error = caught.value
    assert error.short_bytes > 0 and error.needed_budget_bytes > error.budget_bytes
    roles = {holder["name"]: holder["role"] for holder in error.holders}
    assert roles["conv1.weight"] == "parameters"
    locked = [h for h in error.holders if not h["pinned"]]
    assert all(h["locks"] > 0 for h in locked)
    first = error.remedies()[0]
    assert f"--memory-budget {error.needed_budget_bytes}" in first


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A program whose steps depend on the data."""
    model = tree_lstm(batch=64, seed=0, features=8, width=16, classes=3)
    path = tmp_path_factory.mktemp("tree") / "tree.tdtr"
    onnx.save(model, path.with_suffix(".onnx"))
    assert main(["build", str(path.with_suffix(".onnx")), "-o", str(path)]) == 0
    return path


def test_running_out_where_steps_depend_on_data(tree, tmp_path, capsys):
    run = ["run", str(tree), "--no-baseline", "--length", "nodes=31..31"]
    run += ["--memory-budget", "120KiB", "--policy", "lru"]  # which op runs out: by no cost
    assert main([*run, "--report", str(tmp_path)]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("tvm-dtr: error: the memory budget of 122880 bytes is ")
    assert re.search(
        r"too small at node\.product \(MatMul\) \(kernel vm_mod_\w+\) and nothing is left",
        told[0],
    )
    rows = columns(told)
    roles = {name: (role, why) for name, role, why in rows}
    assert roles["node.weight"] == ("parameters", "pinned, in use by the op")
    assert roles["leaf.weight"] == ("parameters", "pinned")
    assert roles["x"] == ("inputs and constants", "pinned")
    assert all(role and why for role, why in roles.values())
    assert any(line.startswith("in all: ") and "parameters" in line for line in told)
    (needed,) = re.findall(r"passes this point is (\d+) bytes", told[0])
    assert f"--memory-budget {needed}" in told[-2] and told[-2].startswith("remedy 1: give ")
    assert re.match(r"remedy 2: use a batch of about \d+ in place of 64", told[-1])
    assert (tmp_path / "report.html").exists(), "what happened until then"


def test_thrashing_where_steps_depend_on_data_has_a_table(tree):
    program = tvm_dtr.load(tree)
    inputs = synthetic_inputs(program, 0, 0, {"nodes": (31, 31)})
    program.measure(inputs)
    vm = tvm_dtr.VirtualMachine(program, memory_budget="80%", thrash_limit=1e-6)
    with pytest.raises(tvm_dtr.ThrashError) as caught:
        for _ in range(3):
            vm.step(**inputs)
    error = caught.value
    roles = {holder["name"]: holder["role"] for holder in error.holders}
    assert roles["node.weight"] == "parameters" and all(h["pinned"] for h in error.holders)
    assert error.remedies()[0].startswith("give ")


def test_thrashing_has_a_table_and_remedies(program):
    vm = tvm_dtr.VirtualMachine(program, thrash_limit=1e-6)
    vm.set_budget("75%")
    with pytest.raises(tvm_dtr.ThrashError) as caught:
        for _ in range(3):
            vm.step(**synthetic_inputs(program, 0))
    error = caught.value
    assert {"parameters", "inputs and constants"} <= set(by_role(error.holders))
    remedies = error.remedies()
    (given,) = re.findall(r"--memory-budget (\d+)", remedies[0])
    assert int(given) > error.budget_bytes and "predicted slowdown" in remedies[0]
