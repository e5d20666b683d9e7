"""`tvm-dtr simulate` and `run --trace`, as a user meets them."""

import json

import pytest
from graph_chain import chain_graph

from tvm_dtr import load
from tvm_dtr.cli import main


@pytest.fixture
def graph_file(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(chain_graph(20).to_json())
    return path


def test_tables_plot_and_json(graph_file, tmp_path, capsys):
    out, table = tmp_path / "new" / "out", tmp_path / "rows.json"
    options = ["--policies", "auto,lru", "--budgets", "80%,50%", "--search", "scan", "--seed", "3"]
    assert main(["simulate", str(graph_file), *options, "--out", str(out), "--json", str(table),
                 "--jobs", "2"]) == 0  # fmt: skip
    names = {path.name for path in out.iterdir()}
    assert names == {"table.md", "table.csv", "table.json", "slowdown.png", "slowdown.svg"}
    rows = json.loads(table.read_text())["rows"]
    assert rows == json.loads((out / "table.json").read_text())["rows"]
    assert [(r["method"], r["budget_fraction"]) for r in rows] == [
        ("auto", pytest.approx(0.8, abs=1e-3)),
        ("auto", 0.5),
        ("lru", pytest.approx(0.8, abs=1e-3)),
        ("lru", 0.5),
    ]
    printed = capsys.readouterr().out
    assert "chain: slowdown by budget" in printed
    assert f"{rows[1]['slowdown']:.3f}" in printed
    assert "<svg" in (out / "slowdown.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "lru,,size"], "'lru,,size' is not a list a,b,c"),
        (["--policies", "best"], "unknown policy 'best'"),
        (["--budgets", "lots"], "memory budget 'lots' does not parse"),
        (["--thrash-limit", "-1"], "'-1' is not a number of 0 or more"),
        (["--out", "FILE"], "is a file"),
    ],
)
def test_wrong_usage_is_one_line(graph_file, tmp_path, capsys, options, message):
    (tmp_path / "taken").write_text("")
    options = [str(tmp_path / "taken") if option == "FILE" else option for option in options]
    assert main(["simulate", str(graph_file), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_one_name_for_two_traces_is_refused(graph_file, capsys):
    assert main(["simulate", str(graph_file), str(graph_file)]) == 2
    assert "two traces are called 'chain'" in capsys.readouterr().err


def test_made_up_workloads(tmp_path):
    table = tmp_path / "rows.json"
    what = ["--workload", "chain:200", "--workload", "dag:100:3"]
    assert main(["simulate", *what, "--policies", "lru", "--budgets", "80%", "--json", str(table),
                 "--out", str(tmp_path / "out")]) == 0  # fmt: skip
    rows = json.loads(table.read_text())["rows"]
    assert [row["trace"] for row in rows] == ["chain-200", "dag-100-3"]
    assert {row["result"] for row in rows} == {"ok"}


@pytest.mark.parametrize(
    "workload",
    ["chain", "chain:0", "chain:x", "chain:5:5", "knot:5", "dag:5:5:5", "adversary:9:3:best",
     "adversary:9999:3:lru", "chain:99999999999"],
)  # fmt: skip
def test_wrong_workloads_are_refused(capsys, workload):
    assert main(["simulate", "--workload", workload]) == 2
    error = capsys.readouterr().err
    assert f"workload '{workload}': use NAME:OPS with NAME one of chain, resnet" in error
    assert len(error.splitlines()) == 1


def test_nothing_to_simulate_is_refused(capsys):
    assert main(["simulate"]) == 2
    assert "name a TRACE or a --workload" in capsys.readouterr().err


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("program")
    model, program = str(path / "net.onnx"), str(path / "net.tdtr")
    assert main(["models", "make", "resnet8", "--batch", "16", "-o", model]) == 0
    assert main(["build", model, "-o", program]) == 0
    return path / "net.tdtr"


# Sizes alone decide under `size`: the two differ in costs, which are measured anew for the trace.
def test_a_program_and_the_trace_that_run_writes_simulate_alike(program, tmp_path):
    trace = tmp_path / "net.json"
    run = ["run", str(program), "--memory-budget", "none", "--steps", "2", "--trace", str(trace)]
    assert main(run) == 0
    built = load(program).graph.to_dict()
    written = json.loads(trace.read_text())
    assert written["overhead_ns"] > 0
    assert written["ops"] == built["ops"]
    costs = [[kernel["cost_ns"] for kernel in graph["kernels"]] for graph in (built, written)]
    assert costs[0] != costs[1] and min(costs[1]) > 0
    decisions = []
    for path in (program, trace):
        table = tmp_path / "rows.json"
        assert main(["simulate", str(path), "--policies", "size", "--json", str(table)]) == 0
        rows = json.loads(table.read_text())["rows"]
        decisions.append(
            [{k: row[k] for k in ("budget_bytes", "peak_bytes", "evictions")} for row in rows]
        )
    assert decisions[0] == decisions[1]


def test_a_trace_that_is_no_json_is_refused(program, capsys):
    assert main(["run", str(program), "--memory-budget", "none", "--trace", "t.log"]) == 2
    assert "must end in .dtrace (events) or .json" in capsys.readouterr().err
