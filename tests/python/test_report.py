"""The HTML report: its figures are the run's, it needs no network, and a browser shows it."""

import json
import re
import shutil
import subprocess

import onnx
import pytest
from traced_run import traced_run

from tvm_dtr import models
from tvm_dtr.cli import main
from tvm_dtr.cli.report_page import PICTURES
from tvm_dtr.models.tree_lstm import tree_lstm
from tvm_dtr.report.data import layer_times, report_data
from tvm_dtr.report.page import fill
from tvm_dtr.trace import read_events
from tvm_dtr.trace.analysis import Analysis

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
FLAGS = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
  --disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=4000"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    trace, rows = traced_run(tmp_path_factory.getbasetemp())
    path = trace.with_name("report.html")
    assert main(["report", str(trace), "-o", str(path), "--json", str(path) + ".json"]) == 0
    return path, rows[-1]


def figures(path):
    text = path.read_text(encoding="utf-8")
    (data,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)
    return json.loads(data)


def test_the_page_has_the_figures_of_the_run(page):
    data, row = figures(page[0]), page[1]
    for name in ("budget_bytes", "evictions", "rematerializations"):
        assert data["totals"][name] == row[name]
    for name in ("compute_seconds", "remat_seconds", "search_seconds"):
        assert data["totals"][name] == pytest.approx(row[name], abs=1e-6)
    assert data["run"]["slowdown"] == row["slowdown"]
    assert len(data["evictions"]) == row["evictions"]
    assert max(map(sum, zip(*data["sizes"], strict=True))) == data["totals"]["peak_bytes"]
    assert max(step["peak_bytes"] for step in data["steps"]) == row["peak_bytes"]
    layers = sum(layer["compute"] for layer in data["layers"])
    assert layers / 1e3 == pytest.approx(row["compute_seconds"], abs=1e-6)
    assert sum(layer["again"] for layer in data["layers"]) / 1e3 == pytest.approx(
        row["remat_seconds"], abs=1e-6
    )
    assert any("the slowdown would be" in line for line in data["advice"])
    assert data["curve"]["smallest_bytes"] < row["budget_bytes"]


# A straight-line model and one whose steps depend on the data, each with options of its run.
SMALL = {
    "gpt": (
        lambda: models.gpt(batch=8, seed=0, layers=2, width=32, heads=2, context=32, vocabulary=32),
        ["--memory-budget", "60%"],
    ),
    "tree": (
        lambda: tree_lstm(batch=64, seed=0, features=8, width=16, classes=3),
        ["--memory-budget", "70%", "--length", "nodes=31..31"],
    ),
}


@pytest.fixture(scope="module", params=SMALL)
def reported(request, tmp_path_factory):
    """(folder of ``run --report``, rows of the run, row of ``report``)."""
    make, options = SMALL[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    onnx.save(make(), folder / "model.onnx")
    assert main(["build", str(folder / "model.onnx"), "-o", str(folder / "model.tdtr")]) == 0
    run = ["run", str(folder / "model.tdtr"), "--steps", "3", *options]
    outputs = ["--report", str(folder / "made"), "--json", str(folder / "run.json")]
    assert main([*run, *outputs]) == 0
    again = ["-o", str(folder / "again.html"), "--plots", str(folder / "again")]
    report = ["report", str(folder / "made" / "run.dtrace"), *again]
    assert main([*report, "--json", str(folder / "report.json")]) == 0
    rows = (json.loads((folder / name).read_text())["rows"] for name in ("run.json", "report.json"))
    return folder, *rows


def test_one_command_makes_the_page_and_the_pictures(reported):
    folder = reported[0]
    for made in (folder / "made", folder / "again"):
        for name in PICTURES:
            start = b"\x89PNG" if name.endswith(".png") else b"<?xml"
            assert (made / name).read_bytes().startswith(start), name
    assert figures(folder / "made" / "report.html") == figures(folder / "again.html")


def test_every_sum_is_that_of_the_run(reported):
    folder, rows, (report,) = reported
    row, data = rows[-1], figures(folder / "again.html")
    assert row["evictions"] > 0 and row["rematerializations"] > 0 and row["remat_seconds"] > 0
    for name in ("budget_bytes", "evictions", "rematerializations"):
        assert data["totals"][name] == report[name] == row[name]
    for name in ("compute_seconds", "remat_seconds", "search_seconds"):
        assert data["totals"][name] == pytest.approx(row[name], abs=1e-6)
    assert max(step["peak_bytes"] for step in data["steps"]) == row["peak_bytes"]
    for figure in (data["totals"]["peak_bytes"], max(map(sum, zip(*data["sizes"], strict=True)))):
        assert sum(data["roles_at_peak"].values()) == figure
    layers = {key: sum(layer[key] for layer in data["layers"]) for key in ("compute", "again")}
    assert layers["compute"] / 1e3 == pytest.approx(row["compute_seconds"], abs=1e-6)
    assert layers["again"] / 1e3 == pytest.approx(row["remat_seconds"], abs=1e-6)
    assert sum(again for _, again in data["again"]) / 1e3 == pytest.approx(
        row["remat_seconds"], abs=1e-6
    )
    assert len(data["evictions"]) == row["evictions"]


def test_roles_and_nodes_of_small_models(reported):
    folder = reported[0]
    data = figures(folder / "again.html")
    by_graph = data["curve"] is not None
    for role in ("parameters", "activations", "workspace", "gradients"):
        assert max(data["sizes"][data["roles"].index(role)]) > 0, role
    assert len(data["layers"]) > 3
    assert re.search(r" \(\w+\)", data["recomputed"][0]["name"])
    if not by_graph:
        assert "Control flow depends on the data" in data["no_curve"]
        assert {"leaf", "node", "fc"} <= {layer["layer"] for layer in data["layers"]}


def test_recomputed_storages_are_named_by_node(page):
    data = figures(page[0])
    assert sum(row["times"] for row in data["recomputed"]) <= page[1]["rematerializations"]
    assert re.match(r".+ \(\w+\)", data["recomputed"][0]["name"])


def test_nothing_comes_from_a_network(page):
    text = page[0].read_text(encoding="utf-8")
    addresses = set(re.findall(r"https?://[^\"'\s<]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert not re.search(r"<link[^>]+stylesheet|<script[^>]+src", text)


def test_names_cannot_break_out_of_the_page(page):
    data = figures(page[0])
    data["name"] = "</script><b>&"
    filled = fill(data)
    assert "</script><b>" not in filled
    assert filled.count("</script>") == 2


def test_a_trace_without_a_graph_has_a_page(page, tmp_path):
    events = read_events(page[0].with_name("run.dtrace"))
    for key in ("graph", "parameters", "results"):
        events.header.pop(key)
    analysis = Analysis(events)
    data = report_data(analysis, analysis.step())
    assert data["curve"] is None and data["advice"] == []
    assert layer_times(analysis.step())[0]["layer"] == "all calls"
    assert "all calls" in fill(data)


def browse(page, tmp_path, *arguments):
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    command = [CHROMIUM, *FLAGS.split(), f"--user-data-dir={tmp_path / 'profile'}", *arguments]
    command.append(page)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


def test_chromium_draws_it_without_errors(page, tmp_path):
    shown = browse(page[0].as_uri(), tmp_path, "--dump-dom")
    assert 'data-ready="1"' in shown
    assert shown.count("<polygon") == len(figures(page[0])["roles"])
    assert shown.count("<circle") > figures(page[0])["totals"]["evictions"]
    assert "slowdown would be" in shown


def test_the_keyboard_zooms_and_reads_the_chart(page, tmp_path):
    script = """<script>
      const box = document.getElementById("memory");
      box.focus();
      for (const key of ["+", "ArrowRight", "ArrowLeft", "+"])
        box.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
      document.documentElement.dataset.focused = String(document.activeElement === box);
      document.documentElement.dataset.stops = document.querySelectorAll("[tabindex='0']").length;
    </script></body>"""
    copy = tmp_path / "keys.html"
    copy.write_text(
        page[0].read_text(encoding="utf-8").replace("</body>", script), encoding="utf-8"
    )
    shown = browse(copy.as_uri(), tmp_path, "--dump-dom")
    assert 'data-focused="true"' in shown and 'data-stops="8"' in shown
    assert re.search(r'id="readout"[^>]*>[\d.]+ ms: .*activations', shown)


def test_it_prints(page, tmp_path):
    browse(page[0].as_uri(), tmp_path, f"--print-to-pdf={tmp_path / 'page.pdf'}")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF") or CHROMIUM is None
