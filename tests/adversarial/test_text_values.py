"""Text becomes exactly the value that it means, or is refused with its row, column and value, whichever way it comes.

Each text of a list of hostile ones comes as each type through CSV, JSON, and a cast of a column of text, and is judged
by :mod:`tests.adversarial.text_oracle`. The test marked slow does so with many random texts.
"""

import io
import json
import math
import random
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest

from lakebed import Schema
from lakebed.errors import SchemaMismatchError
from lakebed.files.formats import csv_file
from lakebed.files.formats.input_file import InputFile
from lakebed.files.formats.json_lines import read_json_lines
from lakebed.files.formats.reading_options import DETECTED
from lakebed.files.formats.text_types import NULL_WORDS
from lakebed.model.types import parse
from lakebed.write.conformer import REASON, Conformer
from tests.adversarial.text_oracle import is_usual, meaning
from tests.machine import cores_of_arrow

KINDS = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal128(5, 2)": pa.decimal128(5, 2),
    "decimal256(50, 3)": pa.decimal256(50, 3),
    "date32": pa.date32(),
    "time32[s]": pa.time32("s"),
    "time64[us]": pa.time64("us"),
    "timestamp[s]": pa.timestamp("s"),
    "timestamp[us]": pa.timestamp("us"),
    "timestamp[ns]": pa.timestamp("ns"),
    "timestamp[us, tz=UTC]": pa.timestamp("us", "UTC"),
}
DETECTED_FROM = {
    "bool": "true",
    "int64": "1",
    "double": "1.5",
    "date32": "2024-01-31",
    "time64[us]": "12:00:00",
    "timestamp[us]": "2024-01-31T12:00:00",
    "timestamp[us, tz=UTC]": "2024-01-31T12:00:00Z",
}
"""A value by which each type is detected."""

FOLDER = Path(__file__).parent
HOSTILE = [
    "",
    *(
        line.replace("\\t", "\t")
        for line in (FOLDER / "hostile_texts.txt").read_text("utf-8").split("\n")
        if line and not line.startswith("#")
    ),
]
REFUSED = object()


def stored(column, place=0):
    """The value of a column for the comparison: exact, and of a time the integer that is stored."""
    if column[place].is_valid is False:
        return None
    kind = column.type
    if pa.types.is_temporal(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())[place].as_py()
    value = column[place].as_py()
    if isinstance(value, float):
        value = float(value)
        return "nan" if math.isnan(value) else value if math.isinf(value) else Fraction(value)
    return value if isinstance(value, bool | int) else Fraction(value)


def assert_named(error, text, line):
    """The error names the line, the column and the value."""
    assert re.search(rf"line {line}\b.*column x\b", str(error)), str(error)
    assert repr(text)[1:-1][:40] in str(error) or text[:40] in str(error), str(error)


# -- ways in --------------------------------------------------------------------------------------------------------


@dataclass
class InMemory:
    """The one file of a store, which takes no time to open."""

    content: bytes

    def open(self, path):
        return pa.BufferReader(self.content)


def by_csv(text, kind, *, before=(), **how):
    quoted = '"' + text.replace('"', '""') + '"'
    lines = "k,x\n" + "".join(f"0,{one}\n" for one in before) + f"1,{quoted}\n"
    fields = {"k": pa.int64()} if kind is None else {"k": pa.int64(), "x": kind}
    try:
        plan = csv_file.detect(InputFile("x.csv", "x.csv", InMemory(lines.encode())), DETECTED, fields, **how)
        rows = pa.Table.from_batches(list(csv_file.batches(plan)))
    except SchemaMismatchError as error:
        refused = error
    else:
        return stored(rows["x"].combine_chunks(), len(before))
    assert_named(refused, text, 2 + len(before))
    return REFUSED


def by_json(value, kind):
    data = io.BufferedReader(io.BytesIO(b'{"x": ' + value.encode() + b"}\n"))
    try:
        (rows,) = read_json_lines(data, {"x": kind}, "x.json")
    except SchemaMismatchError as error:
        refused = str(error)
    else:
        return stored(rows["x"])
    assert re.search(r"line 1\b.*column x\b|line 1 is not JSON", refused), refused
    return REFUSED


def by_cast(texts, kind):
    """The outcomes of all texts, as one column."""
    schema = Schema({"k": "int64"}, values={"x": str(kind)})
    rows = pa.record_batch({"k": range(len(texts)), "x": pa.array(texts, pa.string())})
    kept, rejected = Conformer(schema, casts=frozenset("x")).separate(rows, "rows")
    found = {key: stored(kept["x"], place) for place, key in enumerate(kept["k"].to_pylist())}
    for part in rejected:
        assert all("column x" in reason for reason in part[REASON].to_pylist())
        found |= dict.fromkeys(part["k"].to_pylist(), REFUSED)
    assert sorted(found) == list(range(len(texts)))
    return [found[key] for key in range(len(texts))]


# -- judgement ------------------------------------------------------------------------------------------------------


def judge(way, text, kind, found, *, usual):
    """The value is the meaning of the text; a text with a meaning is refused only if it is not in the usual form."""
    means = meaning(text, kind)
    if means is None and way == "cast":
        # Without an offset, a time is in the zone of its field.
        means = meaning(text, kind.replace(", tz=UTC", ""))
    if found is None and way.startswith("csv"):
        assert text in NULL_WORDS
    elif found is REFUSED:
        # Not every decimal reads zero with an exponent of three digits.
        is_zero = means == 0 and kind.startswith("decimal") and re.search("[eE]", text)
        assert means is None or is_zero or (usual and not is_usual(text, kind)), (
            f"{way}: {text!r} as {kind} was refused"
        )
    else:
        assert means is not None, f"{way}: {text!r} as {kind} became {found}, and means nothing"
        assert found == means, f"{way}: {text!r} as {kind} became {found}, and means {means}"
        assert not usual or is_usual(text, kind), f"{way}: {text!r} as {kind} is not in the usual form"


JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
JSON_WORDS = {"NaN": "nan", "Infinity": math.inf, "-Infinity": -math.inf}


def compare(texts, by_csv_too):
    """Compare each text as each type through each way, and through CSV as these types; return how many times."""
    count = 0
    for name, kind in KINDS.items():
        assert parse(name) == kind
        for text, found in zip(texts, by_cast(texts, kind), strict=True):
            judge("cast", text, name, found, usual=False)
            count += 1
        for text in texts:
            bare = text.strip(" \t")
            if text and name in by_csv_too:
                judge("csv", bare, name, by_csv(text, kind), usual=True)
                count += 1
            if name == "bool":
                assert by_json(json.dumps(text), kind) is REFUSED
            elif not pa.types.is_floating(kind):
                judge("json text", text, name, by_json(json.dumps(text), kind), usual=True)
            else:
                assert by_json(json.dumps(text), kind) == JSON_WORDS.get(text, REFUSED), text
            count += 1
            if JSON_NUMBER.fullmatch(text) and not pa.types.is_temporal(kind) and name != "bool":
                # A number of any length is a double, of which JSON has one form.
                judge("json number", text, name, by_json(text, kind), usual=False)
                count += 1
    return count


@pytest.mark.parametrize(
    "by_csv_too", [("double", "timestamp[us]"), pytest.param(tuple(KINDS), marks=pytest.mark.slow)]
)
def test_text_is_exactly_what_it_means_or_is_refused(by_csv_too):
    count = compare(HOSTILE, by_csv_too=by_csv_too)

    print(f"{count:,} comparisons")
    assert count > 10_000


def test_text_of_a_csv_file_has_any_form_of_its_type_if_it_is_cast():
    for name in ("bool", "int64", "double"):
        for text in filter(None, HOSTILE):
            found = by_csv(text, KINDS[name], casts=frozenset("x"))
            judge("csv, cast", text.strip(" \t"), name, found, usual=False)


@pytest.fixture
def one_core():
    """Files are read as one stream: threads for each small one would take most of the time."""
    with cores_of_arrow(1):
        yield


@pytest.mark.usefixtures("one_core")
def test_text_after_the_sample_means_the_same_as_in_it():
    count = 0
    for number, (name, typical) in enumerate(DETECTED_FROM.items()):
        before = [typical] * (64 // len(typical))
        # A file for each text takes most of the time. Every text is of half of the types.
        for text in filter(None, HOSTILE[number % 2 :: 2]):
            judge(
                "csv, detected", text.strip(" \t"), name, by_csv(text, None, before=before, sample_bytes=64), usual=True
            )
            count += 1

    print(f"{count:,} comparisons")
    assert count > 800


def random_texts(seed, count):
    """Texts like the hostile ones: with other digits, or one character changed, left out or added."""
    rng = random.Random(seed)
    characters = "0123456789+-.eExXTZ:_, \t\uff11\u0663infatrueNyo/"
    for _ in range(count):
        text = rng.choice(HOSTILE)
        text = re.sub("[0-9]", lambda found: rng.choice("0123456789") if rng.random() < 0.3 else found[0], text)
        place = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                text = text[:place] + rng.choice(characters) + text[place:]
            case 1:
                text = text[:place] + text[place + 1 :]
            case 2:
                text = text[:place] + rng.choice(characters) + text[place + 1 :]
        yield text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_random_text_is_exactly_what_it_means_or_is_refused(seed):
    count = compare([*random_texts(seed, 500)], by_csv_too=KINDS)

    print(f"{count:,} comparisons")
    assert count > 20_000


@pytest.mark.parametrize("seed", range(2))
def test_columns_of_random_text_are_cast_as_single_texts_are(seed):
    texts = [*random_texts(100 + seed, 1_000)]
    for name, kind in KINDS.items():
        for text, found in zip(texts, by_cast(texts, kind), strict=True):
            judge("cast", text, name, found, usual=False)
