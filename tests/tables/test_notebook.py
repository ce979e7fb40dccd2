"""What notebooks show: figures, pictures and fields, escaped, from states alone."""

import pickle
import xml.etree.ElementTree as ET

import numpy as np
import pyarrow as pa
import pytest

import lakebed
from lakebed import KeyRange, Schema
from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.model.html_tables import facts, grid
from lakebed.model.partitions import Partitions
from lakebed.read.drawing.key_space import CELLS_MAX, KeySpace
from lakebed.read.drawing.pictures import partitions_picture
from lakebed.read.rows.counting import Count
from tests import pages
from tests.raising import raises

SVG = "{http://www.w3.org/2000/svg}"


def made():
    made = lakebed.create(f"memory://{random_token()}")
    schema = Schema({"k": "int64"}, {"at": "date32"}, {"<b>v</b>": "string"})
    table = made.create_table("flights", schema, split_points=[100, 200])
    table.write(pa.table({"k": range(1_234), "at": pa.array([0] * 1_234, pa.date32()), "<b>v</b>": ["x"] * 1_234}))
    return made


@pytest.fixture(scope="module")
def lake():
    return made()


def parsed(html):
    """The elements of the part after the style sheet, which has to be well-formed for that."""
    return ET.fromstring(html.partition("</style>")[2].strip())


def texts(html):
    return [text for text in parsed(html).itertext() if text.strip()]


def test_a_table_shows_its_figures_fields_and_key_space_without_reading_data():
    lake = made()
    lake.storage.delete(one.name for one in list(lake.storage.list("tables")) if one.name.endswith(".parquet"))
    with raises(Code.DATA_FILE_MISSING):
        lake["flights"].get(1)
    for shown in (lake["flights"], lake["flights"].snapshot()):
        html = shown._repr_html_()
        assert {"rows", "1,234", "partitions", "3", "<b>v</b>", "row key", "sort key"} <= set(texts(html))
        assert len([one for one in parsed(html).iter(SVG + "rect") if one.find(SVG + "title") is not None]) == 3
    assert {"flights", "1,234", "k", "int64"} <= {
        *texts(lake._repr_html_()),
        *texts(lake["flights"].schema._repr_html_()),
    }


def test_a_plot_is_svg_that_is_saved(lake, tmp_path):
    plot = lake["flights"].plot_partitions()
    plot.save(tmp_path / "keys.svg")
    root = ET.parse(tmp_path / "keys.svg").getroot()
    cells = [one for one in root.iter(SVG + "rect") if one.find(SVG + "title") is not None]
    assert [one.find(SVG + "title").text.split(":")[0] for one in cells] == [f"partition {n}" for n in (1, 2, 3)]
    widths = [float(one.get("width")) for one in cells]
    assert sum(widths) == pytest.approx(1000, abs=0.01)
    assert widths[2] > 5 * widths[0]
    assert plot._repr_svg_() == plot._repr_html_() == str(plot)


def test_a_picture_is_bounded_whatever_the_number_of_partitions():
    numbers = [n.to_bytes(4, "big") for n in range(1, 100_000)]
    space = KeySpace(1, Partitions.at(tuple(numbers)), *(np.ones(100_000, np.int64) for _ in range(5)))
    assert partitions_picture(space).svg.count("<rect") <= CELLS_MAX + 6


def test_an_explanation_shows_its_funnel(lake):
    found = lake["flights"].explain(KeyRange(0, 150))
    root = ET.fromstring(found.plot().svg)
    assert {"2 partitions", "150 rows"} <= {one.text for one in root.iter(SVG + "text")}
    assert {"Rows returned", "time"} <= set(texts(found._repr_html_()))


def test_counts_and_reports_show_their_fields(lake):
    assert texts(Count(1_234, exact=True)._repr_html_()) == ["Rows", "rows", "1,234"]
    assert "at least" in texts(Count(1_234, exact=False, error_rows=3)._repr_html_())
    report = lake["flights"].verify()
    assert {"VerificationReport", "version"} <= set(texts(report._repr_html_()))
    assert "flights" in texts(lakebed.status(lake)._repr_html_())


def test_numbers_stand_to_the_right_and_texts_are_escaped():
    html = grid(["n", "<t>"], [[1_000, "<script>"], [None, "x" * 100]])
    assert '<th scope="col" class="n">n</th><th scope="col">&lt;t&gt;</th>' in html
    assert '<td class="n">1,000</td><td>&lt;script&gt;</td>' in html
    assert f"<td>{'x' * 80}…</td>" in html
    assert facts([("a&b", True)]) == '<table><tr><th scope="row">a&amp;b</th><td>True</td></tr></table>'


def test_the_code_of_the_page_on_notebooks_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lake = lakebed.create(f"memory://{random_token()}")
    flights = lake.create_table("flights", Schema({"tailnum": "string"}, {}, {"origin": "string"}))
    flights.write(pa.table({"tailnum": ["N14228", "N2"], "origin": ["EWR", "LGA"]}))
    for block in pages.blocks("docs/notebook.md", "python"):
        pages.run(block, {"lake": lake, "flights": flights, "KeyRange": KeyRange})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["partitions.svg", "read.svg"]


def test_rows_that_were_not_read_say_so_with_their_columns_and_how_to_read_them(lake):
    for rows in (lake["flights"].scan(columns=["k", "<b>v</b>"]), lake.sql('SELECT k, "<b>v</b>" FROM flights')):
        assert repr(rows).startswith("<rows, not read yet: k int64, <b>v</b> ")
        assert {"Rows, not read yet", "k", "<b>v</b>", "int64"} <= set(texts(rows._repr_html_()))
        assert any("to_pandas()" in text for text in texts(rows._repr_html_()))
        rows.read_next_batch()
        assert "not read yet" not in repr(rows) + rows._repr_html_()
        rows.close()
        assert "closed" in repr(rows)


def test_the_first_rows_are_printed_as_a_table_and_are_an_arrow_table_otherwise(lake):
    table = lake.create_table("printed", Schema({"k": "string"}, {}, {"n": "int64", "note": "string"}))
    rows = pa.table({"k": ["a", "b", "北京"], "n": [1, None, 3000], "note": ["x\ny", "z" * 90, None]})
    table.write(rows)
    end = "z" * 19
    printed = f"k        n  note\na        1  x\\ny\nb        -  {end}z…{end}\n北京  3000  -\n(3 rows)"
    for head in (table.head(), table.snapshot().head(), table.scan().head(), lake.sql("SELECT * FROM printed").head()):
        assert str(head) == repr(head) == printed
        assert head.to_arrow().sort_by("k") == rows.cast(head.schema)
        assert pa.table(head) == head.to_arrow()
        assert (len(head), head.num_rows, head["k"].to_pylist()) == (3, 3, ["a", "b", "北京"])
        assert head == pickle.loads(pickle.dumps(head))
        assert (head == table.head(1), head == "k") == (False, False)
        assert "<th" in head._repr_html_()
    assert str(table.head(0)) == "k  n  note\n(0 rows)"
    with pytest.raises(AttributeError, match="colum"):
        _ = table.head().colum


def test_a_count_that_is_an_estimate_is_no_length():
    merging = lakebed.create(f"memory://{random_token()}").create_table(
        "t", Schema({"k": "int64"}, {}, {"v": "int64"}), merge=lakebed.Latest()
    )
    for v in (1, 2):
        merging.write(pa.table({"k": range(10), "v": [v] * 10}))
    assert merging
    with raises(Code.ARGUMENT_INVALID) as caught:
        len(merging)
    assert "10 to 20: use count" in str(caught.value)
    assert merging.count(exact=True).rows == 10


class _Shell:
    """What IPython gives to an extension: formatters that know types."""

    class display_formatter:  # noqa: N801 - IPython's name
        class _Html(dict):
            for_type = dict.__setitem__

        formatters = {"text/html": _Html()}  # noqa: RUF012


def test_the_extension_shows_arrow_tables_as_tables_until_it_is_unloaded(lake):
    lakebed.load_ipython_extension(_Shell)
    (show,) = _Shell.display_formatter.formatters["text/html"].values()
    table = lake["flights"]
    shown = texts(show(table.get(7)))
    assert {"Rows: 1", "k", "at", "<b>v</b>", "7", "1970-01-01", "x"} <= set(shown)
    assert "Rows: 1,234, the first 20" in texts(show(table.to_arrow()))
    assert {"type", "add_files", "create_table"} <= set(texts(show(table.history())))
    # The keys of files and partitions are structs.
    assert {"1,233", "200"} <= set(texts(show(table.files())))
    assert show(
        pa.table({"t": pa.array([2**62], pa.timestamp("s")), "m": pa.array([[("a", 1)]], pa.map_("string", "int64"))})
    )
    assert texts(show(pa.table({})))
    lakebed.unload_ipython_extension(_Shell)
    assert not _Shell.display_formatter.formatters["text/html"]


def test_an_error_in_a_notebook_has_the_lines_of_its_user_alone(lake):
    def looked_up():
        return lake["flights"].get(1, columns=["nope"])

    with raises(Code.COLUMN_UNKNOWN) as caught:
        looked_up()
    *lines, last = caught.value._render_traceback_()
    assert last == f"UsageError: {caught.value}"
    assert [line.split("\n")[1].strip() for line in lines] == [
        "looked_up()",
        'return lake["flights"].get(1, columns=["nope"])',
    ]
    assert all("test_notebook.py" in line for line in lines)
