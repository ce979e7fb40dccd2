"""The application that ``spark-submit`` runs: the command line, in the session that ``spark-submit`` configures.

``lakebed --application`` prints the path of this file. A cluster may run a copy of it: it needs only ``lakebed``,
installed or sent along, in the Python of the driver (docs/clusters.md).
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this folder first, where `sql` and `tables` are modules of the command line.
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    from lakebed.cli import main

    sys.exit(main())
