"""Exceptions of other libraries, and missing modules, become errors of Lakebed."""

import ast
import re
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import UsageError
from lakebed.errors import Code
from lakebed.model.foreign_errors import EXTRAS, error_text, optional_imports, translate_errors
from tests.machine import hide_packages
from tests.raising import raises
from tests.soaked import chosen
from tests.tables.retention.cases import made

BLOCKED = """
import sys
sys.modules[{module!r}] = None
import lakebed
from lakebed.errors import UsageError
"""
ASK = {
    "pyspark": "from lakebed import Pipeline; Pipeline(lakebed.create({url!r})).session",
    "pandas": "lakebed.create({url!r}).create_table('t', lakebed.Schema({{'k': 'string'}})).to_pandas()",
    "polars": "lakebed.create({url!r}).create_table('t', lakebed.Schema({{'k': 'string'}})).lazy_polars()",
    "datasketches": "lakebed.create({url!r}); from lakebed import sketches; sketches.hll([1])",
    "duckdb": "lakebed.create({url!r}).create_table('t', lakebed.Schema({{'k': 'string'}})).to_duckdb()",
    "sqlalchemy": "lakebed.create({url!r}, log_url='postgresql://nowhere/db')",
    "psycopg": "lakebed.create({url!r}, log_url='postgresql://nowhere/db')",
    "boto3": "lakebed.create({url!r}, log_url='dynamodb://table')",
}


class PanicException(BaseException):
    """As the bindings of an engine in Rust raise it."""


@pytest.mark.parametrize("module", chosen(ASK, "pyspark", "duckdb"))
def test_an_error_names_the_extra_that_is_missing(tmp_path, module):
    ask = ASK[module].format(url=str(tmp_path / "lake"))
    program = BLOCKED.format(module=module) + f"try:\n    {ask}\nexcept UsageError as error:\n    print(error.message)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True, timeout=120)
    assert f"pip install 'lakebed[{EXTRAS[module]}]'" in ran.stdout, ran.stderr[-500:]
    assert module in ran.stdout


def test_an_import_needs_no_spark(tmp_path):
    """PySpark is first imported to see whether the source is a frame of it."""
    (tmp_path / "a.csv").write_text("k\na\n")
    program = BLOCKED.format(module="pyspark") + (
        f"lake = lakebed.create({str(tmp_path / 'lake')!r})\n"
        "lake.create_table('t', lakebed.Schema({'k': 'string'}))\n"
        "from lakebed import Pipeline\n"
        "if __name__ == '__main__':\n"
        "    with Pipeline(lake, progress=None) as pipeline:\n"
        f"        print(pipeline.bulk_import('t', {str(tmp_path / 'a.csv')!r}).rows)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True, timeout=120)
    assert ran.stdout == "1\n", ran.stderr[-500:]


@pytest.mark.parametrize(("spark", "package"), [(False, "pandas"), (True, "'lakebed[spark]'")])
def test_without_pandas_the_error_asks_for_no_spark(monkeypatch, spark, package):
    if spark:
        pytest.importorskip("pyspark")
    else:
        hide_packages(monkeypatch, "pyspark")
    with pytest.raises(UsageError, match=re.escape(f"not installed: pip install {package}")), optional_imports():
        raise ModuleNotFoundError("No module named 'pandas'", name="pandas")


@pytest.mark.parametrize(("module", "named"), [("google.protobuf", "protobuf"), ("grpc", "grpcio")])
def test_a_module_is_named_as_it_is_installed(module, named):
    with pytest.raises(UsageError, match=f"this needs {named}, which is not installed"), optional_imports():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def test_every_extra_that_is_named_there_is():
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert set(EXTRAS.values()) <= set(declared["project"]["optional-dependencies"])


def test_every_package_that_may_be_missing_has_an_extra():
    """Otherwise an import of it is a traceback where the package is not installed."""
    root = Path(__file__).parents[2]
    declared = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    always = {re.split(r"[-<>=]", package)[0] for package in declared} | {"lakebed"}
    imported = set()
    for path in (root / "src").rglob("*.py"):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    assert imported - sys.stdlib_module_names - always - set(EXTRAS) == set()


def test_a_panic_is_reported_and_an_interrupt_passes():
    with (
        pytest.raises(UsageError, match="the engine says: at the disco"),
        translate_errors(lambda e: Code.ARGUMENT_INVALID(f"the engine says: {e}")),
    ):
        raise PanicException("at the disco")
    for other in (KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError, lakebed.NotFoundError):
        with pytest.raises(other), translate_errors(lambda e: Code.INTERNAL_ERROR(error_text(e))):
            raise other("it", code=Code.TABLE_NOT_FOUND) if other is lakebed.NotFoundError else other("it")


def test_an_error_that_came_of_an_interrupt_is_the_interrupt():
    """Python's Condition.wait releases its lock twice if the interrupt comes just after the first time."""

    def interrupted_in(lock):
        with lock:
            lock.release()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught, translate_errors(lambda e: Code.INTERNAL_ERROR(error_text(e))):
        interrupted_in(threading.Lock())
    assert str(caught.value.__cause__) == "release unlocked lock"


def test_an_error_while_something_is_cleared_up_after_an_interrupt_is_an_error():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with raises(Code.INTERNAL_ERROR), translate_errors(lambda e: Code.INTERNAL_ERROR(error_text(e))):
            raise ValueError("no such folder")  # noqa: B904 - within the block, as a library raises it


def test_an_error_without_a_message_has_its_type_as_text():
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError

    assert error_text(Mute()) == "Mute"
    assert error_text(ValueError()) == "ValueError"
    assert error_text(ValueError("DataFusion error: a\n  b.")) == "a b"


def test_an_error_of_a_stream_of_rows_during_a_write_is_translated():
    table = made("ab")

    def batches(error):
        yield table.scan().read_all().to_batches()[0]
        raise error

    schema = table.schema.arrow
    for error in (ValueError("bad"), OSError("gone"), pa.ArrowInvalid("broken"), PanicException("oh")):
        with pytest.raises(UsageError, match="cannot read rows from their source"):
            table.write(pa.RecordBatchReader.from_batches(schema, batches(error)))
    assert table.count().rows == 2


def test_a_pandas_frame_that_arrow_cannot_take_is_reported():
    pandas = pytest.importorskip("pandas")
    table = made()
    with raises(Code.VALUE_NOT_REPRESENTABLE):
        table.write(pandas.DataFrame({"k": [1, "a", object()]}))


def test_a_panic_while_a_predicate_is_planned_is_reported(monkeypatch):
    from lakebed.engine import predicate

    class Engine:
        def from_arrow(self, rows):
            raise PanicException("unreachable code")

    monkeypatch.setattr(predicate, "row_engine", Engine)
    with pytest.raises(UsageError, match="unreachable code"):
        made("ab").scan(where="v > 41")
