"""Tables on the terminal."""

import io

from rich.console import Console

from tvm_dtr.cli import report
from tvm_dtr.errors import BudgetError


def holders(count):
    names = [{"name": f"w{i}", "bytes": 2**20, "pinned": True, "locks": 0} for i in range(count)]
    return [{"name": "output of conv", "bytes": 3 * 2**20, "pinned": False, "locks": 1}, *names]


def words(text):
    return [line.split() for line in text.splitlines()]


def test_what_holds_memory_is_told_largest_first(capsys):
    report.print_holders(BudgetError("short", holders=holders(1)))
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = words(captured.err)
    assert ["output", "of", "conv", "in", "use", "by", "the", "op", "3.0", "MiB"] in lines
    assert ["w0", "pinned", "1.0", "MiB"] in lines


def test_many_small_holders_are_summed_up(capsys):
    report.print_holders(BudgetError("short", holders=holders(20)))
    lines = words(capsys.readouterr().err)
    assert ["w10", "pinned", "1.0", "MiB"] in lines
    assert ["9", "more", "9.0", "MiB"] in lines


def test_without_holders_there_is_no_table(capsys):
    report.print_holders(BudgetError("short"))
    assert capsys.readouterr().err == ""


def test_a_piped_table_is_never_cut(capsys):
    report.print_table("T", ["name", "n"], [["k" * 120, "1"]])
    assert "k" * 120 in capsys.readouterr().out


def test_progress_is_shown_on_a_terminal_only(monkeypatch, capsys):
    with report.progress("steps", 3) as advance:
        advance(3)
    assert capsys.readouterr().err == ""
    terminal = io.StringIO()
    monkeypatch.setattr(report, "console", lambda _: Console(file=terminal, force_terminal=True))
    with report.progress("steps", 3) as advance:
        advance(2)
        advance(3, label="the last one")
    shown = terminal.getvalue()
    assert "3/3" in shown and "the last one" in shown
