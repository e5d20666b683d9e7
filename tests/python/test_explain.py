"""What a refusal tells: holders by role and node, and remedies that help."""

import pytest
from traced_run import traced_run

import tvm_dtr
from tvm_dtr.cli import main
from tvm_dtr.explain import by_role, held_by_op


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
