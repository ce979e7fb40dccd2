"""SQLAlchemy's tests of dialects.

Five things are changed. A table of one column without a key gets a key, a key that is not given is counted by Python,
no view is created, an index that the tests declare as unique is expected as one that is not, and the first column of a
table without a primary key as one that is never null.
"""

import itertools

import sqlalchemy as sa
from sqlalchemy import ColumnDefault, Integer, event, select
from sqlalchemy.testing.suite import *  # noqa: F403
from sqlalchemy.testing.suite import ComponentReflectionTest as _ComponentReflectionTest
from sqlalchemy.testing.suite import HasTableTest as _HasTableTest
from sqlalchemy.testing.suite import test_types


def keyed_table(name, metadata, *columns, **options):
    """A table of a single column, with a key that its queries leave out: a key is never null, and the column may be."""
    if len(columns) > 1:
        return sa.Table(name, metadata, *columns, **options)
    key = sa.Column("key", Integer, primary_key=True, default=itertools.count().__next__)
    table = sa.Table(name, metadata, *columns, key, **options)
    table.select = lambda: select(*(one for one in table.columns if one is not key))
    return table


test_types.Table = keyed_table


@event.listens_for(sa.Column, "before_parent_attach")
def count_keys(column, table):
    """Count the values of a column that the tests want to be generated; before 2.1 the tests of JSON do not say so."""
    unsaid = sa.__version__ < "2.1" and (table.name, column.name) == ("data_table", "id")
    if (column.info.get("test_needs_autoincrement") or unsaid) and column.default is None:
        numbers = itertools.count(1)
        ColumnDefault(lambda: next(numbers))._set_parent_with_dispatch(column)


class HasTableTest(_HasTableTest):
    @classmethod
    def define_views(cls, metadata):
        """None: the test creates them whether there are views or not."""


class ComponentReflectionTest(_ComponentReflectionTest):
    def exp_columns(self, *args, **options):
        expected = super().exp_columns(*args, **options)
        for (_, table), (first, *_) in expected.items():
            if table in ("no_constraints", "noncol_idx_test_nopk"):
                first["nullable"] = False
        return expected

    def exp_indexes(self, *args, **options):
        expected = super().exp_indexes(*args, **options)
        for index in itertools.chain.from_iterable(expected.values()):
            index["unique"] = False
        return expected
