"""``python -m lakebed.cli``: the command line where its script is not on the PATH."""

import sys

from lakebed.cli import main

sys.exit(main())
