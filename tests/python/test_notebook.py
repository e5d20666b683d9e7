"""What notebooks show, and what memory is held between steps."""

import xml.etree.ElementTree as ElementTree

import pytest
from traced_run import traced_run

import tvm_dtr
from tvm_dtr.cli.synthetic import synthetic_inputs
from tvm_dtr.notebook import Figures, shown
from tvm_dtr.passes.schedule import Schedule


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return tvm_dtr.load(traced_run(tmp_path_factory.getbasetemp())[0].with_name("r8.tdtr"))


def cells(text):
    return {row[0].text: row[1].text for row in ElementTree.fromstring(text)}


def test_figures_have_units_and_are_escaped():
    assert shown("peak_bytes", 3 * 2**20) == "3.0 MiB (3,145,728 bytes)"
    assert shown("step_seconds", 0.0015) == "1.500 ms"
    assert shown("budget_bytes", None) == "none"
    assert cells(Figures(name="<b>")._repr_html_()) == {"name": "<b>"}


def test_programs_and_stats_are_tables(program):
    assert cells(program._repr_html_())["ops"] == str(len(program.graph.ops))
    vm = tvm_dtr.VirtualMachine(program, memory_budget="75%")
    vm.step(**synthetic_inputs(program, 0))
    assert vm.stats["peak_bytes"] > 0
    assert f"({vm.stats['peak_bytes']:,} bytes)" in cells(vm.stats._repr_html_())["peak_bytes"]


def test_schedules_are_tables_and_short_lines():
    schedule = Schedule("dtr", "net<1>", 2**20, [("compute", 0), ("free", 0)], 2**19, 3.0, 2.0, 1)
    shown_cells = cells(schedule._repr_html_())
    assert shown_cells["graph"] == "net<1>" and shown_cells["method"] == "dtr"
    assert shown_cells["peak_bytes"] == "512.0 KiB (524,288 bytes)"
    assert shown_cells["predicted_slowdown"] == "1.500" and shown_cells["ops"] == "1"
    assert repr(schedule).startswith("Schedule(graph='net<1>', method='dtr'")
    assert "steps" not in repr(schedule)


def test_the_memory_report_adds_up(program):
    vm = tvm_dtr.VirtualMachine(program, memory_budget="75%")
    vm.step(**synthetic_inputs(program, 0))
    report = vm.memory_report()
    parts = ("parameters_bytes", "optimizer_state_bytes", "other_bytes", "free_bytes")
    assert sum(report[name] for name in parts) == report["mapped_bytes"] <= report["budget_bytes"]
    assert report["parameters_bytes"] == sum(value.nbytes for value in vm.parameters.values())
    assert report["optimizer_state_bytes"] == 0 and report["other_bytes"] >= 0
