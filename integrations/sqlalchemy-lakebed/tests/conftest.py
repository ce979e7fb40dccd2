"""An instance in a folder, and an engine of it."""

import pytest
import sqlalchemy as sa

import lakebed


@pytest.fixture
def lake(tmp_path):
    return lakebed.create(str(tmp_path / "lake"))


@pytest.fixture
def engine(lake, tmp_path):
    # In SQLAlchemy 1.4 this is the engine of 2.0.
    engine = sa.create_engine(f"lakebed:///{tmp_path}/lake", future=True)
    yield engine
    engine.dispose()
