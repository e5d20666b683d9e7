"""What the README tells people to type works, on a smaller model and batch."""

import re
import shlex
from pathlib import Path

import pytest

from tvm_dtr.cli import main

README = (Path(__file__).parents[2] / "README.md").read_text()
SMALLER = {"resnet32": "resnet8", "64": "4", "40%": "80%"}


def smaller(text):
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_python_example(capsys, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(smaller(code), "README.md", "exec"), {})
    *steps, shape = capsys.readouterr().out.splitlines()
    losses, peaks = zip(*(map(float, step.split()) for step in steps), strict=True)
    assert losses[0] > losses[1] > losses[2]
    assert max(peaks) < 4 * 2**20
    assert shape == "(16, 3, 3, 3)"
    assert (tmp_path / "resnet8.tdtr").exists()


def test_the_command_lines(capsys):
    lines = re.findall(r"^    tvm-dtr (.*)$", README, re.MULTILINE)
    assert [line.split()[0] for line in lines] == [
        "models",
        "build",
        "run",
        "run",
        "train",
        "export",
    ]
    for line in smaller("\n".join(lines)).splitlines():
        assert main(shlex.split(line)) == 0
    assert "are bitwise those of TVM's own VM" in capsys.readouterr().out
    assert Path("report/report.html").exists() and Path("trained.onnx").exists()


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) >= 5
    assert [t for t in targets if not (Path(__file__).parents[2] / t).exists()] == []
