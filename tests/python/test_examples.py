"""The examples do what docs/training.md says, in a shorter run."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_digits_are_learned_at_half_the_memory_and_exported(tmp_path, monkeypatch):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    monkeypatch.setattr(sys, "argv", ["digits.py", "--out", str(tmp_path / "digits")])
    found = runpy.run_path(str(EXAMPLES / "digits.py"))["main"]()
    assert found["accuracy"] >= 0.97
    assert found["onnx_runtime_accuracy"] == found["accuracy"]
    assert found["peak_bytes"] <= 0.5 * found["unbudgeted_peak_bytes"]


def test_characters_become_less_surprising():
    before, after = runpy.run_path(str(EXAMPLES / "characters.py"))["main"](["--epochs", "2"])
    assert after < before / 2
