"""The command line: exit status, one-line errors, broken output."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tvm_dtr.cli import main

COMMAND = [sys.executable, "-m", "tvm_dtr.cli"]


@dataclass
class Outcome:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Runs the command line in this process, from an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        status = main(list(arguments))
        return Outcome(status, *capsys.readouterr())

    return call


@pytest.mark.parametrize(
    "arguments",
    [(), ("build",), ("run",), ("models",), ("models", "list"), ("models", "make")],
    ids=" ".join,
)
def test_every_command_has_help(cli, arguments):
    result = cli(*arguments, "--help")
    assert result.returncode == 0
    assert result.stdout.startswith("usage: tvm-dtr " + " ".join(arguments))
    assert result.stderr == ""


@pytest.mark.parametrize("module", ["tvm_dtr", "tvm_dtr.cli"])
def test_the_package_runs_as_a_module(module):
    command = [sys.executable, "-m", module, "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.startswith("tvm-dtr ")


def test_interrupting_the_start_is_one_line():
    code = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'tvm_dtr.cli.run':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from tvm_dtr.cli import main\n"
        "sys.exit(main(['--help']))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "tvm-dtr: interrupted\n"


def test_help_does_not_import_tvm():
    code = (
        "import sys\nfrom tvm_dtr.cli import main\nmain(['--help'])\n"
        "sys.exit('tvm' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["trian"], "invalid choice: 'trian'"),
        (["models"], "the following arguments are required: ACTION"),
        (["models", "make", "mlp"], "the following arguments are required: -o/--output"),
        (["models", "make", "mlp", "-o", "."], "output '.' is a directory: name a file"),
        (["models", "make", "mlp", "-o", "no/m.onnx"], "there is no folder 'no'"),
        (["models", "make", "lenet", "-o", "m.onnx"], "unknown model 'lenet': expected one of"),
        (["models", "make", "mlp", "--batch", "0", "-o", "m"], "'0' is not a positive whole"),
        (["models", "make", "mlp", "--seed", "-1", "-o", "m"], "'-1' is not a whole number"),
        (["build", "no.onnx"], "there is no file 'no.onnx'"),
        (["build", "resnet32"], "make it with: tvm-dtr models make resnet32 -o resnet32.onnx"),
        (["build", "."], "'.' is a directory"),
        (["build", "no.onnx", "--shape", "x"], "'x' is not NAME=DIM,DIM,..."),
        (["build", "no.onnx", "--shape", "x=0,3"], "has a dimension of 0"),
        (["build", "no.onnx", "--lr", "-0.1"], "'-0.1' is not a positive number"),
        (["build", "no.onnx", "--lr", "nan"], "'nan' is not a positive number"),
        (["build", "no.onnx", "--loss", "huber"], "invalid choice: 'huber'"),
        (["build", "no.onnx", "--optimizer", "sophia"], "invalid choice: 'sophia'"),
        (["run", "no.tdtr"], "the following arguments are required: --memory-budget"),
        (["run", "no.tdtr", "--memory-budget", "40%"], "there is no file 'no.tdtr'"),
        (["run", "no.tdtr", "--memory-budget", "1", "--steps", "1.5"], "'1.5' is not a positive"),
    ],
)
def test_wrong_usage_is_status_2_and_one_line(cli, arguments, message):
    result = cli(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--memory-budget", "40q"], "memory budget '40q' does not parse: use bytes"),
        (["--memory-budget", "-5%"], "memory budget '-5%' is not positive: use bytes"),
        (["--memory-budget", "40%", "--plot", "m.gif"], "must end in .png or .svg"),
        (["--memory-budget", "40%", "--plot", "no/m.png"], "there is no folder 'no'"),
        (["--memory-budget", "40%", "--json", "."], "output '.' is a directory"),
        (["--memory-budget", "40%", "--lr", "0.1"], "--lr is a choice of building"),
    ],
)
def test_run_refuses_before_it_loads(cli, tmp_path, options, message):
    (tmp_path / "p.tdtr").write_bytes(b"not a program")
    result = cli("run", "p.tdtr", *options)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("build", "m", "-o", "m"),
        ("build", "m", "-o", "link"),
        ("build", "m", "--json", "m"),
        ("build", "m", "-o", "new", "--json", "./new"),
        ("run", "m", "--memory-budget", "none", "--json", "m"),
        ("run", "m.png", "--memory-budget", "none", "--plot", "m.png"),
        ("run", "m", "--memory-budget", "none", "--plot", "p.png", "--plot", "p.png"),
        ("models", "make", "mlp", "-o", "new", "--json", "new"),
    ],
    ids=" ".join,
)
def test_an_output_never_takes_the_place_of_another_file_of_the_command(cli, tmp_path, arguments):
    for name in ("m", "m.png"):
        (tmp_path / name).write_bytes(b"precious")
    (tmp_path / "link").symlink_to("m")
    result = cli(*arguments)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "name another file" in result.stderr
    assert (tmp_path / "m").read_bytes() == (tmp_path / "m.png").read_bytes() == b"precious"


@pytest.mark.parametrize("command", [(), ("build",), ("run",), ("models", "make")], ids=" ".join)
def test_the_page_of_the_command_line_has_every_option(cli, command):
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    options = set(re.findall(r"--[a-z0-9-]+", cli(*command, "--help").stdout))
    assert options
    assert {option for option in options if not re.search(rf"{option}\b(?!-)", page)} == set()


def test_running_out_of_memory_is_one_line(cli, monkeypatch):
    monkeypatch.setattr("tvm_dtr.models.make", lambda *_, **__: np.empty(2**62, "uint8"))
    result = cli("models", "make", "mlp", "-o", "m.onnx")
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "not enough memory" in result.stderr


def test_models_list_as_table_and_json(cli, tmp_path):
    result = cli("models", "list", "--json", "models.json")
    assert result.returncode == 0
    assert "resnet1202" in result.stdout and "19,424,026" in result.stdout
    rows = json.loads((tmp_path / "models.json").read_text())["rows"]
    assert rows[0] == {
        "model": "mlp",
        "description": "MLP, 4 hidden layers of 512",
        "input_shape": [784],
        "parameters": 1195018,
    }


def test_models_make_writes_a_seeded_model(cli, tmp_path):
    onnx = pytest.importorskip("onnx")
    result = cli("models", "make", "resnet8", "--batch", "dynamic", "-o", "r.onnx", "--seed", "3")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "wrote r.onnx (0.3 MiB)\n"
    model = onnx.load(tmp_path / "r.onnx")
    from tvm_dtr.models import make

    assert model.SerializeToString() == make("resnet8", batch=None, seed=3).SerializeToString()
    assert os.listdir(tmp_path) == ["r.onnx"]


def test_reader_that_has_gone_is_no_traceback(tmp_path):
    process = subprocess.Popen(
        [*COMMAND, "models", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait() == 1


def test_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        result = subprocess.run(
            [*COMMAND, "models", "list"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 1
    told = "tvm-dtr: error: an output could not be written: No space left on device\n"
    assert result.stderr == told


def test_closed_standard_output_is_no_failure(tmp_path):
    result = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *COMMAND, "models", "list", "--json", "m.json"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert (result.returncode, result.stderr) == (0, "")
    assert (tmp_path / "m.json").exists()


@pytest.mark.parametrize("redirection", ["| cat", "> out.txt; cat out.txt"])
def test_json_may_go_to_standard_output(tmp_path, redirection):
    line = f'"$@" --json /dev/stdout {redirection}'
    command = ["sh", "-c", line, "sh", *COMMAND, "models", "make", "mlp", "-o", "m.onnx"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert result.stderr == ""
    assert '"model": "mlp"' in result.stdout


def test_debug_shows_the_traceback_before_the_line(cli):
    result = cli("models", "make", "lenet", "-o", "m.onnx", "--debug")
    assert result.returncode == 2
    assert result.stderr.startswith("Traceback (most recent call last)")
    assert result.stderr.splitlines()[-1].startswith("tvm-dtr: error: unknown model 'lenet'")
