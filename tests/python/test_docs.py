"""Every command and every piece of Python in docs/ works as written there, on smaller models.

A page's commands run in order in one folder, after those of command-line.md, whose files other
pages use; then its Python, as one program. What cannot run stands after a line
``<!-- not run: the reason -->``.
"""

import hashlib
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import tvm_dtr
from tvm_dtr.cli import main

DOCS = Path(__file__).parents[2] / "docs"
FIRST = "command-line.md"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
# What is cheap and shares kernels with other tests; names of files stay as they are.
SMALLER = [
    (r"(models make) (resnet|mobilenet|vgg)\S*", r"\1 resnet8"),
    (r"--batch 64", "--batch 4"),
    (r"x=64,", "x=4,"),
    (r"--memory-budget \d+%", "--memory-budget 90%"),
    (r"--steps \d+", "--steps 2"),
]


def commands(page):
    """(command, reason not to run it or None) of each command in the page's code blocks."""
    reason = None
    found = []
    lines = iter((DOCS / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if marker := re.fullmatch(r"<!-- not run: (.+) -->", line):
            reason = marker[1]
        elif line and not line.startswith("    "):
            reason = None
        if not line.startswith("    tvm-dtr "):
            continue
        command = line.strip()
        while command.endswith("\\"):
            command = command[:-1] + next(lines).strip()
        command = command.partition("    #")[0]
        found.append((command, reason))
    return found


def smaller(command):
    for pattern, cheap in SMALLER:
        command = re.sub(pattern, cheap, command)
    return re.sub(r"(?<=--require-sha256 )\w{64}", lambda _: sha256(command.split()[2]), command)


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def python(page):
    """The page's blocks of Python, one after the other."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the commands of command-line.md have run."""
    path = tmp_path_factory.mktemp("docs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        run_all(FIRST)
    return path


def run_all(page):
    for command, reason in commands(page):
        if reason is None:
            assert main(shlex.split(smaller(command))[1:]) == 0, f"{page}: {command}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_commands_work(page, folder, monkeypatch):
    monkeypatch.chdir(folder)
    if page != FIRST:
        run_all(page)
    assert any(reason is None for _, reason in commands(page)), "a page whose commands never run"


@pytest.mark.parametrize("page", [page for page in PAGES if python(page)])
def test_the_python_works(page, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names = {"np": np, "tvm_dtr": tvm_dtr}
    if "program" not in re.findall(r"^(\w+) = ", python(page), re.MULTILINE):
        names["program"] = tvm_dtr.load("resnet32.tdtr")  # that a page before it has built
    exec(compile(python(page), page, "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_no_command_is_written_so_that_it_is_not_found(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    assert set(re.findall(r"^ *```(.+)$", text, re.MULTILINE)) <= {"python"}
    prose = re.sub(r"^```python\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"^(?!    tvm-dtr )[ $>]*tvm-dtr ", prose, re.MULTILINE)
    assert not re.search(r"^    (python3?|pip|import|from|vm|rows) ", prose, re.MULTILINE)


def test_what_follows_a_marker_is_told_apart():
    marked = [reason for page in PAGES for _, reason in commands(page) if reason is not None]
    assert "the logs of the DTR authors are not part of this project" in marked


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)\)", text)
    assert [target for target in targets if not (DOCS / target).exists()] == []
