"""The command line as ``python -m lakebed``, for environments whose scripts are not on the PATH."""

import sys

from lakebed.cli import main

if __name__ == "__main__":
    sys.exit(main())
