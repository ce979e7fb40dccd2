"""Lakebed as the online and the offline store of Feast."""

from feast_lakebed.offline import LakebedOfflineStore, LakebedOfflineStoreConfig
from feast_lakebed.online import LakebedOnlineStore, LakebedOnlineStoreConfig
from feast_lakebed.source import LakebedLoggingDestination, LakebedSource, SavedDatasetLakebedStorage

__all__ = [
    "LakebedLoggingDestination",
    "LakebedOfflineStore",
    "LakebedOfflineStoreConfig",
    "LakebedOnlineStore",
    "LakebedOnlineStoreConfig",
    "LakebedSource",
    "SavedDatasetLakebedStorage",
]
