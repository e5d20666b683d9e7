"""The picture of memory over time: its curves, the budget line, and that it works in grey."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tvm_dtr.plot import MemoryTrace, memory_figure, picture_format, save_figure

MIB = 2**20
FULL = MemoryTrace("without a budget", np.array([0.0, 0.1, 0.2]), np.array([10, 100, 20]) * MIB)
SMALL = MemoryTrace("within the budget", np.array([0.0, 0.2, 0.3]), np.array([10, 40, 20]) * MIB)


def lines(figure):
    return {line.get_label(): line for line in figure.axes[0].get_lines()}


def test_curves_carry_the_data_in_milliseconds_and_mebibytes():
    drawn = lines(memory_figure([FULL, SMALL], 40 * MIB))
    curve = drawn["without a budget (peak 100.0 MiB)"]
    np.testing.assert_allclose(curve.get_xdata(), [0, 100, 200])
    np.testing.assert_allclose(curve.get_ydata(), [10, 100, 20])
    assert curve.get_drawstyle() == "steps-post"
    assert set(drawn["the budget (40.0 MiB)"].get_ydata()) == {40.0}


def test_without_a_budget_there_is_no_line():
    assert list(lines(memory_figure([FULL], None))) == ["without a budget (peak 100.0 MiB)"]


def test_it_is_grey_and_the_curves_differ_in_brightness():
    drawn = list(lines(memory_figure([FULL, SMALL], 40 * MIB)).values())
    colors = [to_rgb(line.get_color()) for line in drawn]
    assert all(len(set(color)) == 1 for color in colors)
    assert abs(colors[0][0] - colors[1][0]) >= 0.4
    assert drawn[2].get_linestyle() == "--"


def test_the_axes_start_at_zero_and_name_their_units():
    axes = memory_figure([FULL, SMALL], 40 * MIB, "resnet32").axes[0]
    assert axes.get_xlim()[0] == axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 100
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time in the step (ms)", "memory (MiB)")
    assert axes.get_title() == "resnet32"


def test_png_and_svg_are_written_and_repeatable(tmp_path):
    for name in ("a.png", "b.png", "a.svg", "b.svg"):
        save_figure(memory_figure([FULL, SMALL], 40 * MIB), tmp_path / name)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    words = "".join(ElementTree.parse(tmp_path / "a.svg").getroot().itertext())
    assert "the budget (40.0 MiB)" in words


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="expected 1 to 3 traces, got 0"):
        memory_figure([], None)
    empty = MemoryTrace("empty", np.array([]), np.array([]))
    with pytest.raises(ValueError, match="trace 'empty': 0 times for 0 sizes"):
        memory_figure([empty], None)
    with pytest.raises(ValueError, match=r"'m.gif': the name must end in .png or .svg"):
        picture_format("m.gif")
