"""The command line, ``tvm-dtr``."""

import sys

__all__ = ["main"]

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main(argv: list[str] | None = None) -> int:
    """Runs a command line and returns its exit status; see tvm_dtr.cli.entry.

    Ctrl-C is one line from the first moment on: importing the commands takes a while.
    """
    try:
        from tvm_dtr.cli.entry import main as run

        return run(argv)
    except KeyboardInterrupt:
        print("tvm-dtr: interrupted", file=sys.stderr)
        return INTERRUPTED
