"""Readers that know docs/format.md alone answer as Lakebed does, and refuse what they should (tests/golden/kit.json).

The reader in Go needs a Go toolchain and its modules: ``make second-reader-go`` fetches them. Without, it is skipped.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from examples import second_reader
from lakebed.errors import DamagedError, NotFoundError, UnsupportedFormatError
from tests.golden.kit import CASES, KIT, answer, line, lines_of, rows_at, tables
from tests.golden.make import ARCHIVE, FOLDER, extract

GO_READER = Path(second_reader.__file__).parent / "second_reader_go"
GIVEN = json.loads((FOLDER / KIT).read_text())


class Refused(Exception):
    """What a reader refused, and why: ``unsupported`` or ``damaged``, or either if it does not tell."""

    def __init__(self, kinds, text):
        super().__init__(text)
        self.kinds = kinds


def by_lakebed(root, table, version):
    try:
        return lines_of(rows_at(lakebed.open(str(root)).table(table), version))
    except UnsupportedFormatError as error:
        raise Refused({"unsupported"}, str(error)) from error
    except (DamagedError, NotFoundError) as error:
        raise Refused({"damaged"}, str(error)) from error


def by_second_reader(root, table, version):
    try:
        header, _ = second_reader.header_and_lines((root / "instance.json").read_bytes())
        table_id = second_reader.table_ids(root, header["instance"])[table]
        state = second_reader.state_at(root, table_id, version)
        rows = second_reader.rows_of(root, table_id, state)
    except (second_reader.UnreadableError, OSError) as error:
        raise Refused({"unsupported", "damaged"}, str(error)) from error
    fields = second_reader.fields_of(state.schemas[-1])
    columns = [_column([row[f["name"]] for row in rows], second_reader.arrow_type(f["type"])) for f in fields]
    return lines_of(pa.table(columns, names=[f["name"] for f in fields]))


def _column(values, kind):
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(map(_bytes_of, values), kind.storage_type))
    return pa.array(values, kind)


def _bytes_of(value):
    return getattr(value, "bytes", value)


@functools.cache
def go_program(folder):
    """Build the reader from modules that are there, without a download."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        pytest.skip("no Go toolchain")
    program = folder / "second_reader"
    settings = {**os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
    command = [go, "build", "-o", str(program), "."]
    done = subprocess.run(
        command, cwd=GO_READER, capture_output=True, text=True, env=settings, timeout=900, check=False
    )
    if "module lookup disabled" in done.stderr or "requires go" in done.stderr:
        pytest.skip(f"modules of Go are missing, `make second-reader-go` fetches them: {done.stderr[:200]}")
    assert done.returncode == 0, done.stderr
    return program


def by_go(root, table, version, program):
    command = [str(program), str(root), table, *([] if version is None else [str(version)])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode in (3, 4):
        raise Refused({{3: "unsupported", 4: "damaged"}[done.returncode]}, done.stderr)
    assert done.returncode == 0, done.stderr
    return [line(json.loads(one)) for one in done.stdout.splitlines()]


@pytest.fixture(params=["lakebed", "python", "go"])
def reader(request, tmp_path_factory):
    if request.param == "go":
        return functools.partial(by_go, program=go_program(tmp_path_factory.getbasetemp()))
    return {"lakebed": by_lakebed, "python": by_second_reader}[request.param]


UNABLE = {"by_go": {"greatest": "the merge mode custom"}}
"""What a reader may refuse: tables that depend on SQL which it cannot evaluate (docs/format.md, 1.3)."""


def test_the_kit_has_the_rows_of_lakebed_and_every_case(tmp_path):
    assert tables(extract(FOLDER / ARCHIVE, tmp_path) / "lake") == GIVEN["tables"]
    stored = {one["case"]: (one["table"], one["result"], one["names"]) for one in GIVEN["changed"]}
    assert stored == {name: (table, result, names) for name, (table, _, result, names) in CASES.items()}


@pytest.mark.parametrize("reader", ["python", "go"], indirect=True)
def test_another_reader_gives_the_expected_rows(reader, tmp_path):
    root = extract(FOLDER / ARCHIVE, tmp_path) / "lake"
    name = getattr(reader, "func", reader).__name__
    compared = 0
    for wanted in GIVEN["tables"]:
        table, version = wanted["table"], wanted["version"]
        if table in UNABLE.get(name, {}):
            with pytest.raises(Refused, match=UNABLE[name][table]):
                reader(root, table, version)
            continue
        lines = reader(root, table, version)
        found = answer(lines, wanted["key_fields"])
        assert found["count"] == wanted["count"], (table, version)
        if len(wanted["rows"]) == wanted["count"]:
            assert sorted(map(line, found["rows"])) == sorted(map(line, wanted["rows"])), (table, version)
        assert found["sha256"] == wanted["sha256"], (table, version)
        assert found["keys"] == wanted["keys"], (table, version)
        compared += 1
    assert compared > 50


@pytest.mark.parametrize("case", GIVEN["changed"], ids=lambda case: case["case"])
def test_a_reader_refuses_what_it_should(reader, case, tmp_path):
    root = extract(FOLDER / ARCHIVE, tmp_path) / "lake"
    for name, data in case["put"].items():
        (root / name).write_bytes(base64.b64decode(data))
    for name in case["delete"]:
        (root / name).unlink()
    (wanted,) = (one for one in GIVEN["tables"] if one["table"] == case["table"] and one["version"] is None)
    if case["result"] == "rows":
        lines = reader(root, case["table"], None)
        assert answer(lines, wanted["key_fields"])["sha256"] == wanted["sha256"]
        return
    with pytest.raises(Refused) as raised:
        reader(root, case["table"], None)
    assert case["result"] in raised.value.kinds
    assert case["names"] in str(raised.value)
