"""Readers that know docs/format.md alone answer as Lakebed does, and refuse what they should (tests/golden/kit.json).

The reader in JavaScript needs Node.js and its packages: ``make second-reader-js`` fetches them. Without, it is skipped.
"""

from __future__ import annotations

import base64
import functools
import json
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

JS_READER = Path(second_reader.__file__).parent / "second_reader_js"
NODE_MIN = 20
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
def js_command():
    """The command of the reader, with packages that are there, without a download."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    if int(version.strip().removeprefix("v").partition(".")[0]) < NODE_MIN:
        pytest.skip(f"Node.js is {version.strip()}, of {NODE_MIN} at least")
    installed = JS_READER / "node_modules" / ".package-lock.json"
    if not installed.exists() or versions(installed) != versions(JS_READER / "package-lock.json"):
        pytest.skip("the locked packages of the reader in JavaScript are missing: `make second-reader-js` fetches them")
    return [node, str(JS_READER / "main.js")]


def versions(lock):
    packages = json.loads(lock.read_text())["packages"]
    return {name: package["version"] for name, package in packages.items() if name}


def by_js(root, table, version):
    command = [*js_command(), str(root), table, *([] if version is None else [str(version)])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode in (3, 4):
        raise Refused({{3: "unsupported", 4: "damaged"}[done.returncode]}, done.stderr)
    assert done.returncode == 0, done.stderr
    return [line(json.loads(one)) for one in done.stdout.splitlines()]


@pytest.fixture(params=["lakebed", "python", "js"])
def reader(request):
    if request.param == "js":
        js_command()
    return {"lakebed": by_lakebed, "python": by_second_reader, "js": by_js}[request.param]


UNABLE = {"by_js": {"greatest": "the merge mode custom"}}
"""What a reader may refuse: tables that depend on SQL which it cannot evaluate (docs/format.md, 1.3)."""


def test_the_kit_has_the_rows_of_lakebed_and_every_case(tmp_path):
    assert tables(extract(FOLDER / ARCHIVE, tmp_path) / "lake") == GIVEN["tables"]
    stored = {one["case"]: (one["table"], one["result"], one["names"]) for one in GIVEN["changed"]}
    assert stored == {name: (table, result, names) for name, (table, _, result, names) in CASES.items()}


@pytest.mark.parametrize("reader", ["python", "js"], indirect=True)
def test_another_reader_gives_the_expected_rows(reader, tmp_path):
    root = extract(FOLDER / ARCHIVE, tmp_path) / "lake"
    compared = 0
    for wanted in GIVEN["tables"]:
        table, version = wanted["table"], wanted["version"]
        if table in UNABLE.get(reader.__name__, {}):
            with pytest.raises(Refused, match=UNABLE[reader.__name__][table]):
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


def test_the_reader_in_javascript_is_short_and_its_lock_names_no_host():
    lines = [one for path in JS_READER.glob("*.js") for one in path.read_text("utf-8").splitlines()]
    assert len(lines) <= 700
    assert max(map(len, lines)) <= 120
    assert "resolved" not in (JS_READER / "package-lock.json").read_text("utf-8")
