"""Assets of Dagster as tables of Lakebed."""

from dagster_lakebed.checks import freshness_check, quality_check, row_count_check
from dagster_lakebed.io_manager import LakebedIOManager

__all__ = ["LakebedIOManager", "freshness_check", "quality_check", "row_count_check"]
