"""tvm_dtr.simulate: its rows, against replays called directly, and what it refuses."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from graph_chain import chain_graph

import tvm_dtr
from tvm_dtr.errors import UsageError
from tvm_dtr.replay import AUTO_POLICIES, replay_of
from tvm_dtr.simulation import Trace, load_trace, simulator

LOGS = Path(__file__).resolve().parents[3] / "shared" / "data" / "dtr-logs"
FIELDS = {
    "trace",
    "method",
    "budget_fraction",
    "budget_bytes",
    "result",
    "slowdown",
    "peak_bytes",
    "planning_seconds",
    "evictions",
    "rematerializations",
}


@pytest.fixture
def graph_file(tmp_path):
    path = tmp_path / "chain.json"
    path.write_text(chain_graph().to_json())
    return path


def test_rows_are_the_replays(graph_file):
    rows = tvm_dtr.simulate(graph_file, policies=["dtr-eq", "lru"], budgets=["50%", 4 * 4096])
    assert [(r["method"], r["budget_bytes"]) for r in rows] == [
        ("dtr-eq", 5 * 4096),
        ("dtr-eq", 4 * 4096),
        ("lru", 5 * 4096),
        ("lru", 4 * 4096),
    ]
    replay = replay_of(chain_graph())
    for row in rows:
        assert row.keys() >= FIELDS
        found = replay.run(budget=row["budget_bytes"], policy=row["method"])
        for name in ("result", "peak_bytes", "evictions", "rematerializations"):
            assert row[name] == found[name], name
        assert row["slowdown"] == (found["slowdown"] if found["result"] == "ok" else None)
    assert (rows[0]["trace"], rows[0]["budget_fraction"], rows[0]["slowdown"]) == (
        "chain",
        0.5,
        1 + 7 / 16,
    )


def test_auto_is_within_its_margin_of_the_best(graph_file):
    budgets = ["80%", "60%", "50%"]
    single = tvm_dtr.simulate(graph_file, policies=AUTO_POLICIES, budgets=budgets)
    for row in tvm_dtr.simulate(graph_file, policies=["auto"], budgets=budgets):
        same = [r for r in single if r["budget_bytes"] == row["budget_bytes"] and r["slowdown"]]
        assert row["slowdown"] <= min(r["slowdown"] for r in same) + 0.005
        assert row["policy"] in AUTO_POLICIES


def test_traces_carry_their_own_thrash_limit():
    graph = chain_graph(60)
    patient = Trace("patient", replay_of(graph), thrash_limit=10.0)
    hasty = Trace("hasty", replay_of(graph), thrash_limit=0.5)
    rows = tvm_dtr.simulate([patient, hasty], policies=["dtr-eq"], budgets=[7 * 4096])
    assert [row["result"] for row in rows] == ["ok", "thrash"]
    (row,) = tvm_dtr.simulate(hasty, policies=["dtr-eq"], budgets=[7 * 4096], thrash_limit=0)
    assert row["result"] == "ok"


def test_threads_change_nothing_but_the_time(graph_file):
    def decisions(jobs):
        seen = []
        rows = tvm_dtr.simulate(
            graph_file, jobs=jobs, progress=lambda done, total: seen.append((done, total))
        )
        assert seen == [(i + 1, 63) for i in range(63)]
        return [{k: v for k, v in row.items() if k != "planning_seconds"} for row in rows]

    assert decisions(1) == decisions(4)


@pytest.mark.parametrize(("jobs", "threads"), [(None, 3), (5, 5)])
def test_as_many_threads_as_cores_unless_told(graph_file, monkeypatch, jobs, threads):
    asked = []

    class Pool(ThreadPoolExecutor):
        def __init__(self, workers):
            asked.append(workers)
            super().__init__(workers)

    monkeypatch.setattr(simulator, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(simulator, "cores", lambda: 3)
    tvm_dtr.simulate(graph_file, policies=["lru"], budgets=["90%"], jobs=jobs)
    assert asked == [threads]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policies": ["best"]}, r"unknown policy 'best': use some of auto, dtr-eq"),
        ({"search": "fast"}, r"unknown search 'fast': use one of heap"),
        ({"dealloc": "keep"}, r"unknown deallocation 'keep': use one of eager, banish, ignore"),
        ({"budgets": ["none"]}, r"a simulation needs budgets"),
        ({"budgets": ["much"]}, r"memory budget 'much' does not parse"),
    ],
)
def test_wrong_options_are_refused(graph_file, options, message):
    with pytest.raises(UsageError, match=message):
        tvm_dtr.simulate(graph_file, **options)


def test_wrong_traces_are_refused_by_name(tmp_path):
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.json").write_text('{"rows": []}')
    (tmp_path / "c.json").write_text("{")
    for name, message in {
        "a.txt": "suffix says nothing known",
        "b.json": "is no OpGraph",
        "c.json": "is no OpGraph",
        "d.log": "does not exist",
    }.items():
        with pytest.raises(UsageError, match=rf"{name}' {message}|{name}': the {message}"):
            load_trace(tmp_path / name)


@pytest.mark.skipif(not LOGS.exists(), reason="needs the logs in ../shared/data")
def test_a_log_is_simulated_as_published():
    reference = json.loads((LOGS / "reference.json").read_text())["resnet32"]
    trace = load_trace(LOGS / "resnet32.log.gz")
    assert trace.replay.constant_bytes() == reference["constant_bytes"]
    assert trace.replay.largest_op_bytes() == reference["largest_op_bytes"]
    rows = tvm_dtr.simulate(trace, policies=["dtr-eq", "lru"], budgets=["50%"])
    published = {(r["policy"], r["budget_fraction"]): r for r in reference["rows"]}
    for row in rows:
        expected = published[row["method"], 0.5]
        assert row["budget_bytes"] == pytest.approx(expected["budget_bytes"], rel=1e-6)
        assert row["result"] == expected["result"]
    assert rows[0]["slowdown"] == pytest.approx(1.107, abs=0.02)
