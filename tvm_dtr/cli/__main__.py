import sys

from tvm_dtr.cli.entry import main

sys.exit(main())
