"""The command line, ``tvm-dtr``."""

from tvm_dtr.cli.entry import main

__all__ = ["main"]
