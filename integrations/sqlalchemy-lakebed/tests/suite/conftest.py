"""SQLAlchemy's plugin of pytest, and the instance that its tests use."""

import pytest
from sqlalchemy_lakebed import LakebedDialect

import lakebed

pytest.register_assert_rewrite("sqlalchemy.testing.assertions")

from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: E402, F403

pytest_plugins = ["unmet"]

lakebed.create("memory://suite", exist_ok=True)
# Tables that many tests share have constraints that only some of the tests are about.
LakebedDialect.omit_constraints = True
