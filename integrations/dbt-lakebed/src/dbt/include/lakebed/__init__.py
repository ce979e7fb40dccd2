"""The macros of the adapter: dbt reads them from the folder of this package."""

from pathlib import Path

PACKAGE_PATH = str(Path(__file__).parent)
