"""docs/command-line.md: its tables are what the parsers say, and every command has an example."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
SCRIPT = DOCS / "command_reference.py"
PAGE = (DOCS / "command-line.md").read_text(encoding="utf-8")


def run(*arguments, script=SCRIPT):
    return subprocess.run(
        [sys.executable, script, *arguments], capture_output=True, text=True, check=False
    )


def test_the_tables_are_current():
    check = run("--check")
    assert check.returncode == 0, f"run 'python docs/command_reference.py':\n{check.stdout}"


def test_an_old_table_is_found_and_renewed(tmp_path):
    copy = tmp_path / SCRIPT.name
    copy.write_text(SCRIPT.read_text())
    page = tmp_path / "command-line.md"
    section = PAGE.index("## `tvm-dtr models make`")
    page.write_text(PAGE[:section] + PAGE[section:].replace("| of the weights", "| of old", 1))
    stale = run("--check", script=copy)
    assert stale.returncode == 1
    assert "-| `--seed N` | of old (default 0) |" in stale.stdout
    assert run(script=copy).returncode == 0
    assert page.read_text() == PAGE


@pytest.mark.parametrize("command", re.findall(r"<!-- options of (tvm-dtr .*?) -->", PAGE))
def test_each_command_has_a_section_with_an_example(command):
    (section,) = re.findall(rf"^## `{command}`\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S)
    assert re.search(rf"^    {command}( |$)", section, re.M), f"no example of {command}"
