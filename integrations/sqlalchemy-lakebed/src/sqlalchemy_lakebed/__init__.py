"""The dialect of SQLAlchemy for Lakebed, over :mod:`lakebed.dbapi`.

    engine = sqlalchemy.create_engine("lakebed:////data/lake")

:mod:`sqlalchemy_lakebed.types` has the types of columns that SQLAlchemy itself does not have.
"""

from sqlalchemy_lakebed.dialect import LakebedDialect
from sqlalchemy_lakebed.types import CATEGORY, FIXED_BINARY, NAMED, TIME, TIMESTAMP, TINYINT, UNSIGNED, VECTOR

__all__ = [
    "CATEGORY",
    "FIXED_BINARY",
    "NAMED",
    "TIME",
    "TIMESTAMP",
    "TINYINT",
    "UNSIGNED",
    "VECTOR",
    "LakebedDialect",
]
