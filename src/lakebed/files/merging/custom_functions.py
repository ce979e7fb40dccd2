"""The functions of the merge mode ``Custom``, and of ``apply``: those of installed packages, and queries.

A package declares a function in its metadata, so that every process that has it installed (services, Spark workers)
finds the same one:

    [project.entry-points."lakebed.merge_functions"]
    top_three = "my_package.functions:top_three"
    "top_three.2" = "my_package.functions:top_three_with_ties"

The name is that of ``Custom("top_three")``; later versions have their number behind it, as ``Custom("top_three", 2)``.
A table stores the name and the version. Nothing that is stored is ever imported by its path.

A query is one SELECT over the table ``rows``, which has the rows of whole keys, and the column ``__lakebed_arrival``
with their position. It gives every column of the schema; their order, and that of the rows, does not matter.

Core functions: :func:`function_of`, :func:`installed`. Errors: UsageError, with the code MERGE_FUNCTION_MISSING for a
function that is not installed or cannot be loaded.
"""

from __future__ import annotations

from functools import lru_cache, partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from lakebed.errors import Code
from lakebed.files.merging.rows_function import RowsFunction
from lakebed.model.arrays import recognise_pandas
from lakebed.model.foreign_errors import installed_function
from lakebed.model.merge_modes import Custom

if TYPE_CHECKING:
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema

GROUP = "lakebed.merge_functions"


def function_of(mode: Custom, schema: Schema) -> RowsFunction:
    """Return the function of a merge mode, over rows of the schema. Raises UsageError if it is not installed."""
    if mode.sql:
        from lakebed.files.merging.merge_query import evaluate

        return RowsFunction(f"sql={mode.sql!r}", partial(evaluate, mode.sql, schema))
    return installed(mode.name, mode.version)


def check(mode: MergeMode, schema: Schema) -> None:
    """Raise UsageError for a mode whose function is not installed here, or whose query does not fit the schema."""
    if not isinstance(mode, Custom):
        return
    if mode.sql:
        from lakebed.files.merging.merge_query import check_query

        check_query(mode.sql, schema)
    else:
        installed(mode.name, mode.version)


@lru_cache(maxsize=256)
def installed(name: str, version: int = 1) -> RowsFunction:
    """Return the function of an installed package. Raises UsageError with MERGE_FUNCTION_MISSING."""
    wanted = name if version == 1 else f"{name}.{version}"
    # Before the function is loaded: it may import pandas, at once or when it is called.
    recognise_pandas()
    function = installed_function(GROUP, wanted, "merge function", Code.MERGE_FUNCTION_MISSING)
    if function is None:
        names = ", ".join(sorted({point.name for point in entry_points(group=GROUP)})) or "none"
        raise Code.MERGE_FUNCTION_MISSING(
            f"no installed package has the merge function {wanted!r} (entry points of the group {GROUP} here: "
            f"{names}); install the package that declares it, on Spark workers as well",
            name=wanted,
        )
    return RowsFunction(repr(wanted), function)
