import sys

from tvm_dtr.cli import main

sys.exit(main())
