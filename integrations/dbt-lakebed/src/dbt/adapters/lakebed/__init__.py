"""The adapter of dbt for Lakebed."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.lakebed.connections import LakebedConnectionManager, LakebedCredentials
from dbt.adapters.lakebed.impl import LakebedAdapter
from dbt.adapters.lakebed.relation import LakebedRelation
from dbt.include import lakebed

__all__ = ["LakebedAdapter", "LakebedConnectionManager", "LakebedCredentials", "LakebedRelation", "Plugin"]

Plugin = AdapterPlugin(adapter=LakebedAdapter, credentials=LakebedCredentials, include_path=lakebed.PACKAGE_PATH)
