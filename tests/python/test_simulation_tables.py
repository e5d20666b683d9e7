"""Tables and the plot of simulated rows."""

import csv
import io

import pytest
from graph_chain import chain_graph
from matplotlib.colors import to_rgb

from tvm_dtr.simulation import Trace, simulate
from tvm_dtr.simulation.plot import slowdown_figure
from tvm_dtr.simulation.tables import FIELDS, comma_separated, markdown, pivot


def row(method, fraction, result="ok", slowdown=None, trace="net"):
    return {
        **dict.fromkeys(FIELDS, 0),
        "trace": trace,
        "method": method,
        "budget_fraction": fraction,
        "budget_bytes": int(fraction * 1000),
        "result": result,
        "slowdown": slowdown,
    }


ROWS = [
    row("dtr", 0.5, slowdown=1.25),
    row("dtr", 0.9, slowdown=1.0625),
    row("lru", 0.5, "thrash"),
    row("lru", 0.9, slowdown=1.5),
]


def test_pivot_has_a_line_a_policy_and_the_largest_budget_first():
    columns, lines = pivot(ROWS)
    assert columns == ["policy", "0.9", "0.5"]
    assert lines == [["dtr", "1.062", "1.250"], ["lru", "1.500", "thrash"]]


def test_markdown_has_a_section_a_trace():
    text = markdown([*ROWS, row("dtr", 0.9, slowdown=2.0, trace="other")])
    assert "## net\n\n| policy | 0.9 | 0.5 |\n| --- | ---: | ---: |\n| dtr |" in text
    assert text.endswith("## other\n\n| policy | 0.9 |\n| --- | ---: |\n| dtr | 2.000 |\n")


def test_csv_reads_back():
    back = list(csv.DictReader(io.StringIO(comma_separated(ROWS))))
    assert [r["slowdown"] for r in back] == ["1.25", "1.0625", "", "1.5"]
    assert tuple(back[0]) == FIELDS


@pytest.fixture(scope="module")
def trace():
    from tvm_dtr.replay import replay_of

    return Trace("chain", replay_of(chain_graph(40)), thrash_limit=1.0)


def test_the_plot_carries_lines_failures_and_the_floor(trace):
    rows = simulate(trace, policies=["dtr-eq", "lru"], budgets=["80%", "60%", "8%"])
    assert [r["result"] for r in rows] == ["ok", "ok", "oom"] * 2
    figure = slowdown_figure(rows, [trace])
    (axes,) = figure.axes
    drawn = {line.get_label(): line for line in axes.get_lines()}
    assert list(drawn["dtr-eq"].get_xdata()) == [
        1.0,
        rows[0]["budget_fraction"],
        rows[1]["budget_fraction"],
    ]
    assert list(drawn["dtr-eq"].get_ydata()) == [1.0, rows[0]["slowdown"], rows[1]["slowdown"]]
    (failed,) = [line for line in axes.get_lines() if line.get_gid() == "failed-lru"]
    assert list(failed.get_xdata()) == [rows[5]["budget_fraction"]]
    assert list(failed.get_ydata()) == [rows[4]["slowdown"]]
    floor = [patch for patch in axes.patches if patch.get_label() == "largest op"]
    edges = floor[0].get_x() + floor[0].get_width()
    assert edges == pytest.approx(4 * 4096 / trace.unbudgeted_peak_bytes)  # x, with three operands


def test_lines_are_grey_and_differ_without_it(trace):
    policies = ["auto", "dtr-eq", "dtr", "dtr-up", "lru", "size", "msps", "random"]
    rows = simulate(trace, policies=policies, budgets=["80%"])
    lines = [x for x in slowdown_figure(rows, [trace]).axes[0].get_lines()]
    assert all(len(set(to_rgb(line.get_color()))) == 1 for line in lines)
    looks = {(str(line.get_marker()), str(line._dash_pattern)) for line in lines}
    assert len(looks) == len(policies)


def test_a_panel_each_and_no_rows_are_refused(trace):
    other = Trace("other", trace.replay)
    rows = simulate([trace, other], policies=["lru"], budgets=["80%"])
    titles = [axes.get_title() for axes in slowdown_figure(rows, [trace, other]).axes]
    assert titles == ["chain", "other"]
    with pytest.raises(ValueError, match="expected rows of the given traces"):
        slowdown_figure(rows, [trace])
    with pytest.raises(ValueError, match="expected rows"):
        slowdown_figure([], [trace])
