"""A project of dbt in an instance of its own, which is opened directly or through a service that runs here."""

import pytest

import lakebed


@pytest.fixture(scope="class")
def instance_url(tmp_path_factory):
    """The folder of a new instance."""
    folder = str(tmp_path_factory.mktemp("lake") / "lake")
    lakebed.create(folder)
    return folder


@pytest.fixture(scope="class")
def dbt_profile_target(instance_url):
    return {"type": "lakebed", "threads": 4, "url": instance_url}
