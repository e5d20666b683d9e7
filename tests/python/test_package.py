"""The package's face: what it exports, and that importing it is cheap."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import tvm_dtr


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_everything_exported_exists():
    assert all(callable(getattr(tvm_dtr, name)) for name in tvm_dtr.__all__)
    assert set(tvm_dtr.__all__) <= set(dir(tvm_dtr))
    with pytest.raises(AttributeError, match="module 'tvm_dtr' has no attribute 'train'"):
        tvm_dtr.train  # noqa: B018


def test_importing_it_does_not_import_tvm():
    assert run("import sys, tvm_dtr; print('tvm' in sys.modules)").stdout == "False\n"


def test_tvm_imports_where_there_is_no_home_folder():
    """TVM makes a folder there when imported; in containers home is often / and read-only."""
    code = "import os; os.environ['HOME'] = '/proc/nowhere'; import tvm_dtr, tvm"
    done = run(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_the_distribution_s():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert re.search(r'^version = "(.*)"$', project, re.MULTILINE)[1] == tvm_dtr.__version__
