"""Event traces: what is read is what the run has told, also after a kill; pictures, Chrome."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
from traced_run import traced_run

import tvm_dtr
from tvm_dtr.cli import main
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.errors import UsageError
from tvm_dtr.simulation import load_trace
from tvm_dtr.trace import Kind, is_event_trace, read_events
from tvm_dtr.trace.analysis import Analysis
from tvm_dtr.trace.chrome import chrome_events
from tvm_dtr.trace.format import encode_header
from tvm_dtr.trace.header import FREE, ROLES
from tvm_dtr.trace.naming import layer_of, parse_source
from tvm_dtr.trace.pictures import lives_figure, memory_by_role, memory_figure, thin

FIELDS = ("budget_bytes", "evictions", "rematerializations")
SECONDS = ("compute_seconds", "remat_seconds", "search_seconds")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return traced_run(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def analysis(run):
    return Analysis(read_events(run[0]))


def test_sums_are_those_of_the_run_to_the_byte_and_microsecond(run, analysis):
    totals, row = analysis.step().totals(), run[1][-1]
    assert row["evictions"] > 0 and row["rematerializations"] > 0
    assert {name: totals[name] for name in FIELDS} == {name: row[name] for name in FIELDS}
    peaks = [step.totals()["peak_bytes"] for step in analysis.steps]
    assert max(peaks) == row["peak_bytes"]  # of all steps
    for name in SECONDS:
        assert totals[name] == pytest.approx(row[name], abs=1e-6)
    assert analysis.notes[-1]["end"]["row"]["slowdown"] == row["slowdown"]


def test_roles_add_up_to_what_is_mapped_and_stay_within_the_budget(analysis):
    step = analysis.step()
    _, sizes = memory_by_role(step)
    assert (sizes >= 0).all()
    assert sizes.sum(axis=1).max() == step.peak_mapped_bytes <= step.budget_bytes
    without_free = np.delete(sizes, ROLES.index(FREE), axis=1).sum(axis=1)
    assert without_free.max() <= step.peak_active_bytes
    used = dict(zip(ROLES, sizes.max(axis=0), strict=True))
    for role in ("parameters", "activations", "gradients", "workspace"):
        assert used[role] > 0, role
    assert used["optimizer state"] == 0


def test_names_lead_back_to_nodes_and_layers(analysis):
    runs = analysis.step().runs
    first = [run.source for run in runs if not run.again]
    assert len(first) == len(analysis.header["graph"]["ops"])
    assert (first[0].node, first[0].op, first[0].layer) == ("conv1", "Conv", "conv1")
    assert {source.phase for source in first} == {"forward", "backward", "update"}
    assert any(source.layer == "layer1.0" for source in first)
    assert all(s.name != "constant" for s in analysis.storages if s.call >= 0)


@pytest.mark.parametrize(
    ("source", "label", "layer"),
    [
        ("node 'a.b.c' (Conv)", "a.b.c (Conv)", "a.b"),
        ("node '/l/0/Mul' (Mul) gradient", "/l/0/Mul (Mul) gradient", "l/0"),
        ("update of 'fc.weight'", "fc.weight update", "fc"),
        ("loss gradient", "loss gradient", "loss"),
    ],
)  # fmt: skip
def test_sources(source, label, layer):
    parsed = parse_source(source)
    assert (parsed.label(), parsed.layer) == (label, layer)
    assert layer_of("conv1") == "conv1"


def test_each_recomputation_follows_an_eviction_of_what_it_makes(analysis):
    step = analysis.step()
    for ns, index in step.made_again:
        ends = [how for _, to, how in analysis.storages[index].spans if to and to <= ns]
        assert ends and set(ends) <= {"evicted", "unreferenced"}


def test_decisions_have_scores_and_candidates(analysis):
    step = analysis.step()
    assert [d.storage for d in step.decisions] == [index for _, index in step.evicted]
    assert all(d.score > 0 and d.candidates > 0 for d in step.decisions)


def test_a_file_cut_anywhere_is_readable(run, tmp_path):
    whole = run[0].read_bytes()
    full = len(read_events(run[0]))
    start = 16 + int.from_bytes(whole[12:16], "little")
    for size in (start, start + 7, len(whole) // 2, len(whole) - 40):
        cut = tmp_path / "cut.dtrace"
        cut.write_bytes(whole[:size])
        events = read_events(cut)
        assert not events.complete
        Analysis(events)
    packed = tmp_path / "cut.dtrace.gz"
    packed.write_bytes(gzip.compress(whole)[:-200])
    assert 0 < len(read_events(packed)) <= full


def test_what_is_no_trace_is_named(run, tmp_path):
    other = tmp_path / "x.dtrace"
    with pytest.raises(UsageError, match=r"x.dtrace' cannot be read: No such file"):
        read_events(other)
    other.write_bytes(b"something else altogether")
    with pytest.raises(UsageError, match="is no event trace"):
        read_events(other)
    assert not is_event_trace(other) and is_event_trace(run[0])
    header = bytearray(encode_header({}))
    header[8] = 9
    other.write_bytes(header)
    with pytest.raises(UsageError, match="version 9 of the format, this tvm-dtr reads version 2"):
        read_events(other)


def test_what_is_too_large_to_be_read_is_refused(run, monkeypatch):
    monkeypatch.setattr("tvm_dtr.trace.format._LARGEST", 1024)
    with pytest.raises(UsageError, match=r"more than can be read: record fewer steps"):
        read_events(run[0])


KILLED = """
import os, signal, sys, tvm_dtr
from tvm_dtr.cli.synthetic import synthetic_inputs
program = tvm_dtr.load(sys.argv[1])
vm = tvm_dtr.VirtualMachine(program, memory_budget="75%")
vm.start_trace(sys.argv[2])
for _ in range(2):
    vm.step(**synthetic_inputs(program, 0))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_the_steps_before_are_there(run, tmp_path):
    trace = tmp_path / "killed.dtrace"
    script = [sys.executable, "-c", KILLED, run[0].with_name("r8.tdtr"), trace]
    killed = subprocess.run(script, env=os.environ, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    analysis = Analysis(read_events(trace))
    assert not analysis.complete
    assert [(step.number, step.failed) for step in analysis.steps] == [(0, None), (1, None)]


@pytest.fixture(scope="module")
def changing(run):
    """(analysis, overwrites as the VM counts them) of two steps between which the budget falls."""
    program = tvm_dtr.load(run[0].with_name("r8.tdtr"))
    vm = tvm_dtr.VirtualMachine(program)
    trace = run[0].with_name("changing.dtrace")
    vm.start_trace(trace)
    written = []
    for step, budget in enumerate((None, "80%")):
        vm.set_budget(budget)
        vm.step(**synthetic_inputs(program, 0, step))
        written.append(vm.counters()["overwrites"])
    vm.stop_trace()
    return Analysis(read_events(trace)), written


def test_updates_in_place_are_recorded_and_shown(changing):
    analysis, written = changing
    assert [step.overwrites for step in analysis.steps] == written and min(written) > 0
    step = analysis.steps[-1]
    updated = {analysis.storages[index].name: index for _, index in step.overwritten}
    assert "conv1.weight" in updated
    assert all(analysis.storages[index].role == "parameters" for index in updated.values())
    axes = lives_figure(analysis, step).axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "written in place" in labels
    events = chrome_events(analysis)["traceEvents"]
    marks = [e["name"] for e in events if e["ph"] == "i" and e["tid"] == 4]
    assert len(marks) == sum(written) and set(updated) <= set(marks)


def test_budget_changes_are_recorded_and_shown(changing):
    analysis, _ = changing
    budget = analysis.steps[1].budget_bytes
    assert [step.budget_bytes for step in analysis.steps] == [None, budget]
    assert budget == int(0.8 * analysis.header["unbudgeted_peak_bytes"])
    events = chrome_events(analysis)["traceEvents"]
    counted = [e["args"]["budget"] for e in events if e["name"].startswith("budget")]
    assert counted == [0, budget]
    (legend,) = memory_figure(analysis, analysis.steps[1]).legends
    assert any(text.get_text().startswith("budget (") for text in legend.get_texts())


def test_results_are_named_and_those_that_are_kept_stay(run, analysis):
    logits = [s for s in analysis.storages if s.result == "logits"]
    assert len(logits) == len(analysis.steps)
    assert all(s.label().endswith(": logits") for s in logits)
    program = tvm_dtr.load(run[0].with_name("r8.tdtr"))
    vm = tvm_dtr.VirtualMachine(program.executable)
    given = list(synthetic_inputs(program, 0).values()) + list(program.initial_state.values())
    trace = run[0].with_name("kept.dtrace")
    vm.start_trace(trace)
    kept = vm.invoke("main", *given)[0]
    vm.invoke("main", *given)
    vm.stop_trace()
    first, second = (s for s in Analysis(read_events(trace)).storages if s.result == "result 0")
    assert first.spans[-1][1] is None, "held by the array, over the next invocation"
    assert first.number != second.number
    del kept


def test_simulation_takes_the_graph_of_the_trace(run):
    program = load_trace(run[0].with_name("r8.tdtr"))
    traced = load_trace(run[0])
    assert traced.unbudgeted_peak_bytes == program.unbudgeted_peak_bytes
    budget = int(0.75 * traced.unbudgeted_peak_bytes)
    assert traced.replay.run(budget=budget) == program.replay.run(budget=budget)


def test_chrome_has_the_tracks_and_an_arrow_for_each_return(analysis):
    events = json.loads(json.dumps(chrome_events(analysis)))["traceEvents"]
    tracks = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert tracks == {"model compute", "recomputation", "evictions", "updates in place"}
    by_phase = {ph: [e for e in events if e["ph"] == ph] for ph in "XCisf"}
    assert len(by_phase["X"]) == sum(len(step.runs) for step in analysis.steps)
    instants = sum(step.evictions + step.overwrites for step in analysis.steps)
    assert len(by_phase["i"]) == instants
    counters = sum(len(step.memory) + len(step.budgets) for step in analysis.steps)
    assert len(by_phase["C"]) == counters
    starts, ends = ({e["id"]: e["ts"] for e in by_phase[ph]} for ph in "sf")
    assert starts.keys() == ends.keys() and len(starts) > 0
    assert all(starts[number] < ends[number] for number in starts)


def test_pictures_are_grey_and_show_the_budget(analysis):
    step = analysis.step()
    figure = memory_figure(analysis, step)
    (legend,) = figure.legends
    labels = {text.get_text() for text in legend.get_texts()}
    assert {"parameters", "activations", "gradients", "workspace", "free"} <= labels
    assert "recomputation" in labels and any(label.startswith("budget (") for label in labels)
    for artist in figure.axes[0].collections:
        for color in artist.get_facecolor():
            assert len(set(color[:3])) == 1, "not grey"
    rows = [label.get_text() for label in lives_figure(analysis, step).axes[0].get_yticklabels()]
    assert rows[0].startswith("conv1 (Conv)") or "MiB" in rows[0]


def test_thinning_keeps_the_peak(analysis):
    ms, sizes = memory_by_role(analysis.step())
    few_ms, few = thin(ms, sizes, 20)
    assert len(few_ms) <= 22
    used = np.delete(sizes, ROLES.index(FREE), axis=1).sum(axis=1).max()
    assert np.delete(few, ROLES.index(FREE), axis=1).sum(axis=1).max() == used


def test_commands(run, tmp_path, capsys):
    trace = str(run[0])
    pictures = ["-o", str(tmp_path / "m.png"), "-o", str(tmp_path / "m.svg")]
    assert main(["trace", "plot", trace, *pictures, "--step", "1"]) == 0
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    assert main(["trace", "convert", trace, "-o", str(tmp_path / "c.json")]) == 0
    assert main(["trace", "plot", trace, "-o", str(tmp_path / "m.gif")]) == 2
    assert main(["trace", "plot", trace, *pictures, "--step", "7"]) == 2
    assert "has no step 7: it has 0, 1, 2" in capsys.readouterr().err
    assert (read_events(trace).kind == Kind.STEP).sum() == 3


def test_the_last_decisions_are_explained(run, capsys):
    program = str(run[0].with_name("r8.tdtr"))
    options = ["--memory-budget", "75%", "--steps", "2", "--no-baseline", "--explain"]
    assert main(["run", program, *options]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"The last \d+ decisions", printed)
    assert re.search(r"1 +[\d.]+ +evict +\S+.* +activations +[\d.]+ +[\d.e-]+ +\d+", printed)
    assert "run again" in printed
