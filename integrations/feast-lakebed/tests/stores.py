"""Feature stores in a folder."""

from __future__ import annotations

from feast import FeatureStore, RepoConfig
from feast_lakebed import LakebedOfflineStoreConfig, LakebedOnlineStoreConfig


def store_at(folder, **online):
    """A feature store whose instance and registry are in a folder."""
    url = online.pop("url", str(folder / "lake"))
    return FeatureStore(
        config=RepoConfig(
            project="shop",
            provider="local",
            registry=str(folder / "registry.db"),
            repo_path=folder,
            online_store=LakebedOnlineStoreConfig(url=url, **online),
            offline_store=LakebedOfflineStoreConfig(url=url),
            entity_key_serialization_version=3,
        )
    )
