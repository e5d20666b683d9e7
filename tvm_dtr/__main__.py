"""``python -m tvm_dtr``: the command line."""

import sys

from tvm_dtr.cli import main

if __name__ == "__main__":
    sys.exit(main())
