"""The package's face: what it exports, and that importing it is cheap."""

import subprocess
import sys

import pytest

import tvm_dtr


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_everything_exported_exists():
    assert all(callable(getattr(tvm_dtr, name)) for name in tvm_dtr.__all__)
    assert set(tvm_dtr.__all__) <= set(dir(tvm_dtr))
    with pytest.raises(AttributeError, match="module 'tvm_dtr' has no attribute 'train'"):
        tvm_dtr.train  # noqa: B018


@pytest.mark.parametrize(
    "order", ["import tvm_dtr.build", "from tvm_dtr.build import build", "import tvm_dtr"]
)
def test_build_is_the_function_whatever_was_imported_before(order):
    result = run(f"{order}\nimport tvm_dtr\nprint(type(tvm_dtr.build).__name__)")
    assert result.stdout == "function\n", result.stderr


def test_importing_it_does_not_import_tvm():
    assert run("import sys, tvm_dtr; print('tvm' in sys.modules)").stdout == "False\n"
