"""--require-sha256: every command that reads a program refuses another file before it runs code."""

import hashlib
from pathlib import Path

import pytest

from tvm_dtr.cli import main

# Its native code is none: only what does not look at it can succeed.
PROGRAM = Path(__file__).parents[1] / "fuzz" / "corpus" / "program" / "small.tdtr"
COMMANDS = {
    "run": ["--memory-budget", "none"],
    "train": ["--epochs", "1"],
    "advise": [],
    "compare": ["--budgets", "50%"],
    "export": ["--checkpoint", str(PROGRAM), "-o", "{out}"],
    "freeze": ["--memory-budget", "50%", "-o", "{out}"],
    "simulate": [],
    "plan": ["--budgets", "50%"],
    "inspect": [],
}


def run(command: str, digest: str, out: Path) -> int:
    rest = [word.format(out=out) for word in COMMANDS[command]]
    return main([command, str(PROGRAM), *rest, "--require-sha256", digest])


@pytest.mark.parametrize("command", COMMANDS)
def test_another_file_is_refused(command, tmp_path, capsys):
    assert run(command, "0" * 64, tmp_path / "out.onnx") == 1
    message = capsys.readouterr().err
    assert "found SHA-256" in message and message.count("\n") == 1
    assert not (tmp_path / "out.onnx").exists()


def test_no_checksum(tmp_path, capsys):
    assert run("inspect", "abc", tmp_path) == 2
    assert "expected the 64 hexadecimal digits" in capsys.readouterr().err


def test_the_file_itself_is_read(tmp_path, capsys):
    digest = hashlib.sha256(PROGRAM.read_bytes()).hexdigest()
    assert run("inspect", digest, tmp_path) == 0
    assert "small.tdtr" in capsys.readouterr().out


def test_an_onnx_file_has_no_code_to_vouch_for(capsys):
    model = PROGRAM.parents[1] / "onnx" / "mlp.onnx"
    assert main(["run", str(model), "--memory-budget", "none", "--require-sha256", "0" * 64]) == 2
    assert "is for program files" in capsys.readouterr().err
