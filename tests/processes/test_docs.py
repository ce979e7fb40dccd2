"""The documentation names what there is, and its code runs."""

from __future__ import annotations

import ast
import datetime as dt
import inspect
import json
import re
import uuid
from pathlib import Path

import click
import pyarrow as pa
import pytest
import yaml

import lakebed
import lakebed.spark
from lakebed import Pipeline
from lakebed.cli import main
from lakebed.cli.manual import contents
from lakebed.cli.reference import every_command
from lakebed.cli.run import exit_code
from lakebed.errors import Code, Error
from lakebed.read.snapshot.handles import TableHandle
from lakebed.read.snapshot.snapshot import Readable, Snapshot
from lakebed.testing.merge_functions import check_merge_function
from tests import pages

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DOCS = Path(__file__).parents[2] / "docs"
PAGE_JSON = (DOCS / "cli-json.md").read_text("utf-8")


OWN_OF_LAKEBED = {
    lakebed.Table: {"base_state", "commit", "history_rows", "layout", "reader", "settings_in_force"}
    | {"snapshot_of", "storage", "log", "state", "tracker", "try_commit"},
    Snapshot: {"encoded", "fed_by", "frame", "planned", "point", "reader", "reopening", "rows", "storage", "state"}
    | {"plan_where", "related", "second_key"},
    lakebed.Instance: {"address", "catalog", "catalog_changes", "catalog_log", "fence_creations", "known_tables"}
    | {"location", "log_of", "named", "opened", "release", "snapshot_named", "sql_engine", "sql_pool_bytes"}
    | {"storage", "table_ids"}
    | {"register_new", "take_catalog_ahead", "tracker", "unnamed", "unnamed_logs"},
    lakebed.Schema: {"arrow_of", "codec", "dictionaries", "html", "order", "project", "returned"},
}
"""Methods that other modules of Lakebed call, which pages need not show."""


def test_messages_name_a_page_by_the_command_that_prints_it() -> None:
    """A user of the wheel has no folder docs. Docstrings are for readers of the source, but those of commands."""
    pages_named = re.compile(r"docs/[a-z-]+\.md")
    help_text = (DOCS / "cli.md").read_text("utf-8")
    found = [f"docs/cli.md: {line}" for line in help_text.splitlines()[6:] if pages_named.search(line)]
    for path in sorted((DOCS.parent / "src").rglob("*.py")):
        if not pages_named.search(text := path.read_text("utf-8")):
            continue
        tree = ast.parse(text)
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
                found += [f"{path}: {named}" for named in pages_named.findall(node.value)]
    # What the command itself takes, and the page on how the reference is made.
    assert [
        one for one in found if "manual.py" not in one and "reference.py" not in one and "such as import" not in one
    ] == []


def test_every_public_name_and_method_is_shown_on_a_page():
    """Beside the reference, which has them all by itself."""
    shown = "\n".join(pages.text_of(page) for page in pages.pages() if page != "docs/api.md")
    names = {*lakebed.__all__, "open"}
    assert not sorted(name for name in names if not re.search(rf"\b{name}\b", shown))
    for cls, own in OWN_OF_LAKEBED.items():
        methods = {name for name in dir(cls) if not name.startswith("_")} - own
        assert not sorted(name for name in methods if not re.search(rf"[.`]{name}\b", shown)), cls


def error_classes(of=Error):
    return [of, *(below for cls in of.__subclasses__() for below in error_classes(cls))]


def public_error_classes():
    return [cls for cls in error_classes() if cls.__module__ == "lakebed.errors"]


def test_the_api_reference_has_every_public_name():
    page = re.findall(r"^::: (\S+)$", (DOCS / "api.md").read_text("utf-8"), re.MULTILINE)
    public = [f"lakebed.{name}" for name in (*lakebed.__all__, "open")]
    public += [f"lakebed.spark.{name}" for name in lakebed.spark.__all__]
    assert not set(public) - set(page)
    assert len(set(page)) == len(page)


@pytest.mark.parametrize("cls", [lakebed.Table, Snapshot])
def test_every_read_of_tables_and_snapshots_is_declared_once_and_shown_for_both(cls):
    declared = {**vars(TableHandle), **vars(Readable)}
    reads = {name for name, value in declared.items() if callable(value) and not name.startswith("_")}
    assert {"get", "scan", "count", "explain", "to_arrow", "files"} <= reads
    assert all(inspect.getdoc(getattr(cls, name)) for name in reads)
    assert [name for name in reads if getattr(cls, name) is not getattr(Readable, name)] == ["snapshot"]


@pytest.mark.parametrize("cls", public_error_classes(), ids=lambda cls: cls.__name__)
def test_the_error_reference_has_the_kind_the_exit_code_and_the_codes_of(cls):
    page = (DOCS / "errors.md").read_text("utf-8")
    name = cls.__name__
    codes = [code for code in Code if code.group == cls.kind]
    row = f"| [`{name}`](#{name.lower()}) | `{cls.kind}` | {exit_code(codes[0](''))} |"
    assert row in page
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    assert "**What happened.**" in section
    assert "**What to do.**" in section
    assert re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", section, re.MULTILINE) == codes


def test_the_error_reference_has_no_class_that_is_gone():
    page = (DOCS / "errors.md").read_text("utf-8")
    assert set(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == {cls.__name__ for cls in public_error_classes()}


# -- code on pages ------------------------------------------------------------------------------------------------

RUN_BY = {
    "README.md": "tests/processes/test_docs.py",
    "docs/bulk-load.md": "tests/processes/test_guides.py",
    "docs/changes.md": "tests/processes/test_docs.py",
    "docs/client.md": "tests/service/test_client.py",
    "docs/clusters.md": "tests/spark/test_pages.py",
    "docs/dbapi.md": "tests/processes/test_guides.py",
    "docs/erasure.md": "tests/processes/test_docs.py",
    "docs/flight-sql.md": "tests/service/test_flight_sql.py",
    "docs/import.md": "tests/spark/test_pages.py",
    "docs/instances.md": "tests/processes/test_docs.py",
    "docs/keys.md": "tests/processes/test_guides.py",
    "docs/late-data.md": "tests/processes/test_guides.py",
    "docs/many-tables.md": "tests/processes/test_guides.py",
    "docs/merging.md": "tests/processes/test_docs.py",
    "docs/notebook.md": "tests/tables/test_notebook.py",
    "docs/removing.md": "tests/processes/test_docs.py",
    "docs/views.md": "tests/processes/test_docs.py",
    "docs/second-key.md": "tests/processes/test_docs.py",
    "docs/schemas.md": "tests/pure/test_schema_sources.py",
    "docs/open.md": "tests/service/test_object_gateway.py",  # and tests/interop/test_iceberg_catalog.py
    "docs/service.md": "tests/service/test_loop.py",
    "docs/types.md": "tests/tables/test_key_types.py",
    "docs/sql-writes.md": "tests/processes/test_docs.py",
    "docs/queries.md": "tests/interop/test_queries_page.py",
    "docs/spark.md": "tests/spark/test_pages.py",
    "docs/streaming.md": "tests/spark/test_pages.py",  # and tests/processes/test_guides.py
    "docs/tutorial.md": "tests/processes/test_guides.py",
}


def test_every_page_with_python_is_run_by_a_test():
    assert {page for page in pages.pages() if pages.blocks(page, "python")} == set(RUN_BY)
    assert all(f'"{page}"' in (pages.ROOT / test).read_text("utf-8") for page, test in RUN_BY.items())


def test_the_example_of_the_readme_runs(tmp_path):
    """Only the place is another; the last lines answer."""
    (example,) = pages.blocks("README.md", "python")
    names = {}
    pages.run(example.replace(("/tmp/lake", str(tmp_path / "lake"))), names)
    flights = names["flights"]
    assert isinstance(flights, lakebed.Table)
    assert flights.get("N14228").column("origin").to_pylist() == ["EWR"]
    assert flights.scan(lakebed.KeyRange("N1", "N2")).read_all().num_rows == 1


def test_the_code_of_the_page_on_instances_gives_what_stands_beside_it():
    names = {"lakebed": lakebed, "pa": pa, "Schema": lakebed.Schema}
    first, *others = pages.blocks("docs/instances.md", "python")
    # The instances of memory:// live as long as the process, which other tests share.
    first = first.replace(("memory://lake", f"memory://{uuid.uuid4().hex}"))
    assert sum(pages.run(block, names) for block in (first, *others)) == 9


def test_the_code_of_the_page_on_removals_gives_what_stands_beside_it():
    names = {"lakebed": lakebed, "pa": pa, "dt": dt, "Schema": lakebed.Schema, "KeyRange": lakebed.KeyRange}
    first, *others = pages.blocks("docs/removing.md", "python")
    first = first.replace(("memory://lake", f"memory://{uuid.uuid4().hex}"))
    assert sum(pages.run(block, names) for block in (first, *others)) == 12


def test_the_code_of_the_page_on_merging_gives_what_stands_beside_it(monkeypatch):
    # The functions of the page are checked, and not the check.
    monkeypatch.setitem(check_merge_function.__kwdefaults__, "examples", 20)
    names = {"lakebed": lakebed, "pa": pa, "dt": dt} | {name: getattr(lakebed, name) for name in lakebed.__all__}
    first, *others = pages.blocks("docs/merging.md", "python")
    first = first.replace(("memory://lake", f"memory://{uuid.uuid4().hex}"))
    assert sum(pages.run(block, names) for block in (first, *others)) == 11


def test_the_code_of_the_page_on_changes_gives_what_stands_beside_it():
    names = {"lakebed": lakebed, "pa": pa, "json": json, "Schema": lakebed.Schema, "Latest": lakebed.Latest}
    first, *others = pages.blocks("docs/changes.md", "python")
    first = first.replace(("memory://lake", f"memory://{uuid.uuid4().hex}"))
    assert sum(pages.run(block, names) for block in (first, *others)) == 15


def test_the_code_of_the_page_on_erasure_gives_what_stands_beside_it(tmp_path):
    names = {"lakebed": lakebed, "pa": pa, "Schema": lakebed.Schema, "Pipeline": Pipeline}
    first, *others = pages.blocks("docs/erasure.md", "python")
    first = first.replace(("/tmp/lake", str(tmp_path / "lake")))
    try:
        assert sum(pages.run(block, names) for block in (first, *others)) == 8
    finally:
        names["pipeline"].close()


def test_the_code_of_the_page_on_views_gives_what_stands_beside_it(tmp_path):
    names = {"pa": pa, "dt": dt, "lakebed": lakebed, "Pipeline": Pipeline}
    names |= {name: getattr(lakebed, name) for name in lakebed.__all__}
    first, *others = pages.blocks("docs/views.md", "python")
    first = first.replace(("/tmp/lake", str(tmp_path / "lake")))
    assert sum(pages.run(block, names) for block in (first, *others)) == 15


def test_the_code_of_the_page_on_a_second_key_gives_what_stands_beside_it(tmp_path):
    names = {"pa": pa, "lakebed": lakebed, "Pipeline": Pipeline}
    names |= {name: getattr(lakebed, name) for name in lakebed.__all__}
    first, *others = pages.blocks("docs/second-key.md", "python")
    first = first.replace(("/tmp/lake", str(tmp_path / "lake")))
    assert sum(pages.run(block, names) for block in (first, *others)) == 6


def test_the_code_of_the_page_on_sql_that_writes_gives_what_stands_beside_it():
    (block,) = pages.blocks("docs/sql-writes.md", "python")
    assert pages.run(block, {"lake": lakebed.create(f"memory://{uuid.uuid4().hex}")}) == 5


def test_code_with_another_value_than_stands_beside_it_is_found():
    names = {}
    assert pages.run(pages.Block("page", 1, "python", "a = 1\na  # 1\na + 1\n# 2\na  # or 3, or 4\n"), names) == 2
    with pytest.raises(AssertionError, match="page:8"):
        pages.run(pages.Block("page", 7, "python", "a = 1\na  # 2\n"), names)


@pytest.mark.parametrize("page", [*pages.pages(), *pages.issue_forms()])
def test_every_command_on_a_page_is_one_of_the_command_line(page):
    """Whole commands are parsed with their options. Those in running text need not have all of their arguments."""
    if page != "docs/cli.md":  # generated from the commands
        for block in pages.blocks(page):
            for words in pages.command_lines(block):
                assert pages.parse(words), f"{page}:{block.line}"
    options = {
        context.command_path.removeprefix("lakebed "): {name for one in command.params for name in one.opts}
        for command, context in every_command()
    }
    shared = set.intersection(*options.values()) | {"--application", "--version", "--help"}
    for line, words in pages.mentions(page):
        named = [word for word in words if re.fullmatch(r"[a-z]+(-[a-z]+)*", word)]
        command = next((path for path in (" ".join(named[:2]), *named[:1]) if path in options), None)
        groups = {path.partition(" ")[0] for path in options}
        assert command or not named or words[0] in groups | shared, f"{page}:{line}: lakebed {' '.join(words)}"
        unknown = {word.partition("=")[0] for word in words if word.startswith("--")} - shared
        assert unknown <= options.get(command, set()), f"{page}:{line}: lakebed {' '.join(words)}"


@pytest.mark.parametrize("form", pages.issue_forms())
def test_an_issue_form_can_be_filled_in(form):
    """The sites that show such forms refuse a whole form for one unknown or missing word."""
    content = yaml.safe_load(pages.text_of(form))
    assert set(content) == {"name", "description", "labels", "body"}
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"textarea", "input", "dropdown"}
    assert all(set(field) <= {"type", "id", "attributes", "validations"} for field in fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert all(isinstance(option, str) for field in fields for option in field["attributes"].get("options", ()))
    assert len({field["id"] for field in fields}) == len(fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_a_command_that_is_none_is_found():
    text = (
        "lakebed --json import t in.parquet --job-id a\n"
        'spark-submit --master yarn \\\n    "$(lakebed --application)" scam t\n'
    )
    first, second = pages.command_lines(pages.Block("page", 1, "", text))
    assert pages.parse(first) == "import"
    with pytest.raises(click.UsageError, match="No such command 'scam'"):
        pages.parse(second)
    with pytest.raises(click.UsageError, match="No such option"):
        pages.parse(["import", "t", "in.parquet", "--jobid", "a"])


RELATIVE = re.compile(r"\]\((?!https?:|mailto:)([^)\s#]*)(#[^)\s]+)?\)")


def anchors(page):
    """The ends of links that lead to headings of a page, as the site and GitHub make them of the same headings."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", pages.pages())
def test_every_link_into_the_repository_leads_to_something(page):
    text = re.sub(r"^```.*?^```$", "", pages.text_of(page), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    here = pages.ROOT / page
    links = [((here.parent / path) if path else here, anchor) for path, anchor in RELATIVE.findall(text)]
    # Pages that the site makes of files of the root, and of the code.
    made = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
    for target, anchor in links:
        found = pages.ROOT / made[target.name] if target.name in made and not target.exists() else target
        assert found.exists(), f"{page}: {target}"
        if anchor and found.suffix == ".md" and found.name != "api.md":
            assert anchor in anchors(found), f"{page}: {target}{anchor}"


def _links_of(page):
    """The pages that a page leads to, relative to the root."""
    text = re.sub(r"^```.*?^```$", "", pages.text_of(page), flags=re.MULTILINE | re.DOTALL)
    ends = [(pages.ROOT / page).parent / path if path else pages.ROOT / page for path, _ in RELATIVE.findall(text)]
    return {end.resolve().relative_to(pages.ROOT).as_posix() for end in ends if end.suffix == ".md" and end.is_file()}


def test_links_lead_from_the_first_page_to_every_page():
    """Without the changelog, which is no path."""
    every = {*pages.pages(), *(path.relative_to(pages.ROOT).as_posix() for path in DOCS.rglob("*.md"))}
    every |= {path.relative_to(pages.ROOT).as_posix() for path in pages.ROOT.glob("integrations/*/README.md")}
    reached, waiting = {"README.md"}, ["README.md"]
    while waiting:
        found = _links_of(waiting.pop()) - reached - {"CHANGELOG.md"}
        reached |= found
        waiting += found
    assert sorted(every - reached - {"SECURITY.md"}) == []


GUIDES = {"Design tables", "Move data", "Read", "Run"}


def test_each_page_is_in_the_contents_once_beginning_with_the_tutorial():
    lines = [line.strip() for line in (DOCS / "contents.txt").read_text("utf-8").splitlines() if line.startswith(" ")]
    every = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    assert sorted(lines) == sorted(name for name in every if not name.startswith("decisions/0"))
    assert lines[0] == "tutorial"
    assert {*contents(DOCS).values()} > GUIDES


def test_each_guide_ends_with_a_next_step():
    """So that the pages are a path, and not a heap."""
    guides = [f"{page}.md" for page, section in contents(DOCS).items() if section in GUIDES]
    assert len(guides) > 30
    ends = {page: (DOCS / page).read_text("utf-8").rstrip().rpartition("\n\n")[2] for page in guides}
    assert [page for page, end in ends.items() if not (end.startswith("**Next:** ") and RELATIVE.search(end))] == []


def test_every_picture_is_on_a_page():
    shown = {
        (pages.ROOT / page).parent.joinpath(target).resolve()
        for page in pages.pages()
        for target in re.findall(r"\]\(([^)\s#]+\.(?:png|svg))\)", pages.text_of(page))
    }
    assert {path for path in DOCS.rglob("*") if path.suffix in {".png", ".svg"}} == shown


def test_the_instance_that_the_page_on_declarations_plans_is_planned_so(tmp_path, monkeypatch, capsys):
    """The declaration of the page, on an instance in which its tag and the settings of its table are set already."""
    (declared,) = (block for block in pages.blocks("docs/apply.md") if block.language == "yaml")
    (shown,) = (block for block in pages.blocks("docs/apply.md") if "--plan" in block.text)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.yaml").write_text(declared.text, "utf-8")
    schema = lakebed.Schema(
        {"place": "string", "sensor": "int32"}, {"at": "timestamp[us, tz=UTC]"}, {"reading": "double"}
    )
    readings = lakebed.create("lake").create_table("readings", schema, settings={"page_rows": 512})
    while readings.version < 12:
        readings.write(pa.table({"place": ["Ulm"], "sensor": [1], "at": [START], "reading": [0.5]}))
    readings.tag("audited", 12)
    assert main(["--instance", "lake", "apply", "lake.yaml", "--plan"]) == 0
    printed = capsys.readouterr()
    assert (printed.out + printed.err).splitlines() == shown.text.splitlines()[1:]


def test_the_configuration_file_of_its_page_is_read(tmp_path, monkeypatch, capsys):
    (block,) = (block for block in pages.blocks("docs/configuration.md") if block.language == "toml")
    (tmp_path / "config.toml").write_text(block.text, "utf-8")
    assert main(["--config", str(tmp_path / "config.toml"), "config", "show"]) == 0
    shown = capsys.readouterr().out
    assert "s3://bucket/lake" in shown
    assert "postgresql://db.example/lake" in shown


@pytest.mark.parametrize("page", ["docs/storage.md", "docs/security.md", "docs/http.md"])
def test_the_json_of_a_page_is_json(page):
    blocks = [block for block in pages.blocks(page) if block.language == "json"]
    assert blocks
    for block in blocks:
        json.loads(block.text)


def test_the_kinds_of_findings_are_those_that_a_verification_reports():
    tables = re.findall(r"^\| kind \| damage .*?\n\n|^\| kind \| damage .*\Z", PAGE_JSON, re.MULTILINE | re.DOTALL)
    rows = [line.split("|")[1] for table in tables for line in table.strip().splitlines()[2:]]
    kinds = {kind for row in rows for kind in re.findall(r"`(\w+)`", row)}
    source = "".join(
        path.read_text("utf-8") for path in (DOCS.parent / "src" / "lakebed" / "read" / "inspect").glob("*.py")
    )
    classes = {cls.kind for cls in public_error_classes()}
    assert len(kinds) > 25
    assert not {kind for kind in kinds if f'"{kind}"' not in source and kind not in classes}
