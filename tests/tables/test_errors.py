"""Codes of errors are stable, are raised, and belong to one class each."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from lakebed import errors
from lakebed.errors import Code, Error

SOURCE = Path(errors.__file__).parent
ON_RECORD = Path(__file__).with_name("error_codes.txt")
"""Append-only: every code that a release had, with its group. A new code is added at the end."""


@pytest.fixture(scope="module")
def modules() -> dict[Path, ast.Module]:
    """The source, but for the module that declares codes and errors."""
    paths = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "errors.py")
    return {path: ast.parse(path.read_text("utf-8")) for path in paths}


def raised(modules: dict[Path, ast.Module]) -> set[str]:
    """The codes that the source names."""
    return {
        node.attr
        for module in modules.values()
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("Code", "errors.Code")
    }


def test_codes_are_those_on_record() -> None:
    recorded = [tuple(line.split()) for line in ON_RECORD.read_text("utf-8").splitlines()]
    assert len(set(recorded)) == len(recorded)
    assert set(recorded) == {(code.value, code.group) for code in Code}


def test_every_code_is_raised_somewhere(modules: dict[Path, ast.Module]) -> None:
    # An error of another library is made where errors are.
    assert {code.name for code in Code} - raised(modules) <= {"FOREIGN_ERROR"}


def test_a_code_is_its_name_in_lower_case() -> None:
    assert [code.value for code in Code] == [code.name.lower() for code in Code]


def test_every_error_is_raised_by_its_code(modules: dict[Path, ast.Module]) -> None:
    classes = {name for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, Error)}
    sites = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path, module in modules.items()
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and ast.unparse(node.func).removeprefix("errors.") in classes
    ]
    assert not sites, "raise Code.X(message) instead"


@pytest.mark.parametrize("code", Code)
def test_an_error_has_the_class_of_its_code_in_every_process(code: Code) -> None:
    error = code("what happened", table="t", version=3)
    for found in (error, pickle.loads(pickle.dumps(error)), errors.decode_error(errors.encode_error(error))):
        assert type(found) is type(error)
        assert (found.code, found.kind, found.table, found.version) == (code, code.group, "t", 3)
        assert str(found) == "what happened"


def test_a_restated_error_keeps_its_code_and_facts() -> None:
    error = Code.ENTRY_DAMAGED("a line is not JSON", name="e").restated("entry 3: a line is not JSON", version=3)
    assert type(error) is errors.DamagedError
    assert (error.code, error.facts) == (Code.ENTRY_DAMAGED, {"name": "e", "version": 3})


def test_a_rejected_change_has_the_code_and_facts_of_its_rejection(tmp_path: Path) -> None:
    table = lakebed.create(tmp_path).create_table("t", lakebed.Schema({"k": "string"}))
    table.write(pa.table({"k": ["a"]}))
    table.tag("audited", version=1)
    with pytest.raises(lakebed.RejectedError) as tagged:
        table.tag("audited", version=2)
    assert (tagged.value.code, tagged.value.tag) == (Code.TAG_EXISTS, "audited")
    with pytest.raises(lakebed.RejectedError) as altered:
        table.alter(lakebed.DropField("k"))
    assert (altered.value.code, altered.value.column) == (Code.SCHEMA_CHANGE_REJECTED, "k")
    assert altered.value.reason in str(altered.value)
