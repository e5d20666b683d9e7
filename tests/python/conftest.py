"""What holds for all tests: long files first, an environment that each leaves as it found it."""

import os
import signal
from pathlib import Path

import pytest

# A shell that runs the tests in the background has them ignore interrupts, and so all they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Longest first: a file is run by one process as a whole (--dist loadfile), and what begins last
# should be short, or the other processes wait for it with nothing to do.
LONG = (
    "test_torch_exports.py",
    "test_docs.py",
    "test_models_control_flow.py",
    "test_mixed_precision.py",
    "test_torch_ops.py",
    "test_cli_run.py",
    "test_report.py",
    "test_examples.py",
    "test_symbolic.py",
    "test_program_cache.py",
    "test_soak.py",
    "test_readme.py",
    "test_planned_steps.py",
    "test_compile_overwrites.py",
    "test_frontend_recurrent.py",
    "test_cli_simulate.py",
    "test_trainer.py",
    "test_control_flow_torch.py",
    "test_leaks.py",
    "test_onnx_export.py",
    "test_measured_costs.py",
    "test_explain.py",
    "test_builder.py",
    "test_fault_matrix.py",
)


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        from tvm_dtr.compile import kernels

        # The test processes share the cores already; each compiler process imports TVM first.
        kernels._KERNELS_PER_WORKER = 10_000


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: order.get(Path(item.fspath).name, len(LONG)))


@pytest.fixture(autouse=True)
def environment():
    """A variable that a test sets for good would change those after it: how fast, or what."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)
