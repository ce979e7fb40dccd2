"""Indexes that are built in parts: by several tasks, by several processes, and by processes that die; and planted bugs.

A process that dies is one whose executor raises what nothing handles: all that it committed stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

import lakebed
from lakebed import Latest, Pipeline, Schema
from lakebed.errors import Code
from lakebed.jobs.executor import Root
from lakebed.jobs.tasks import entries_tasks
from lakebed.model.files import data_name
from lakebed.model.state.transactions import ProposeEntries, ProposeFeed
from lakebed.read.rows import second_key
from lakebed.table.instance import Instance
from lakebed.table.table import Table
from lakebed.upkeep import index_feed
from lakebed.upkeep.index_feed import EntriesTask, Workers, feed_index, run_entries_task
from lakebed.upkeep.view_feed import RefreshReport
from tests.raising import raises
from tests.tables.cases import compact, rewritten
from tests.variants import Variant, instead, planted

SCHEMA = Schema({"k": "int64"}, values={"a": "int32"})
FILES = 4
ROWS = 3
"""Files of the source, and rows of each."""


class Died(BaseException):
    """The process ends here."""


@pytest.fixture
def table(memory_lake: Instance) -> Table:
    made = memory_lake.create_table("t", SCHEMA, merge=Latest())
    memory_lake.create_index("by_a", table="t", on=["a"])
    for number in range(FILES):
        put(made, *(ROWS * number + row for row in range(ROWS)))
    return made


def put(table: Table, *keys: int, a: int = 5) -> int:
    return table.write(pa.table({"k": pa.array(keys, pa.int64()), "a": pa.array([a] * len(keys), pa.int32())}))


def fed(instance: Instance, meanwhile: Sequence[Callable[[], object]] = (), **options: Any) -> RefreshReport:
    """Feed the index, a part for each file, and call one function before each part."""
    index = instance.table("by_a")
    waiting = list(meanwhile)

    def execute(tasks: Sequence[EntriesTask]) -> list[Any]:
        if waiting:
            waiting.pop(0)()
        return [run_entries_task(task, index.storage, Path()) for task in tasks]

    return feed_index(index, instance.table("t"), workers=Workers(execute, lambda: 1), part_rows=1, **options)


def die() -> None:
    raise Died


def wait() -> None:
    pass


def killed(instance: Instance, parts: int, **options: Any) -> None:
    """Feed this many parts, and die."""
    with pytest.raises(Died):
        fed(instance, [*[wait] * parts, die], **options)


def keys(table: Table, a: int = 5) -> list[int]:
    found: list[int] = table.get(by={"a": a}).column("k").to_pylist()
    return found


def entries(instance: Instance) -> int:
    return sum(file.rows for file in instance.table("by_a").state().referenced().values())


def lacking(instance: Instance) -> int:
    """Return the number of files without entries, once the index answers."""
    view = instance.table("by_a").state().view
    assert view is not None
    assert second_key.answers(view, instance.table("t").state())
    return len(second_key.uncovered(instance.table("t").state(), view))


ALL = list(range(FILES * ROWS))


def killed_and_fed(instance: Instance, table: Table) -> None:
    killed(instance, 2)
    assert entries(instance) == 2 * ROWS
    assert keys(table) == ALL
    assert fed(instance).rows_read == 2 * ROWS
    assert (entries(instance), lacking(instance), keys(table)) == (FILES * ROWS, 0, ALL)


def killed_before_its_last_commit(instance: Instance, table: Table) -> None:
    with planted(instead(index_feed, "ProposeFeed", lambda *_, **__: die())), pytest.raises(Died):
        fed(instance)
    assert fed(instance).rows_read == 0
    assert (entries(instance), lacking(instance), keys(table)) == (FILES * ROWS, 0, ALL)


def compacted_meanwhile(instance: Instance, table: Table) -> None:
    killed(instance, 2)
    compact(table)
    fed(instance)
    assert (lacking(instance), keys(table)) == (0, ALL)


def rewritten_meanwhile(instance: Instance, table: Table) -> None:
    fed(instance, [wait, lambda: rewritten(table, set={"a": "a + k"})])
    assert (keys(table, 5), keys(table, 7)) == ([0], [2])
    fed(instance)
    assert (lacking(instance), keys(table, 5), keys(table, 7)) == (0, [0], [2])


def restored_meanwhile(instance: Instance, table: Table) -> None:
    version = table.version
    killed(instance, 2)
    table.remove(lakebed.KeyRange())
    fed(instance)
    assert keys(table) == []
    table.restore(version=version)
    assert keys(table) == ALL
    fed(instance)
    assert (lacking(instance), keys(table)) == (0, ALL)


def late_parts(instance: Instance, table: Table) -> None:
    """The parts of a later feed answer reads before its last commit."""
    fed(instance)
    for key in range(100, 103):
        put(table, key)
    assert lacking(instance) == 3
    killed(instance, 2)
    assert (lacking(instance), keys(table)) == (1, [*ALL, 100, 101, 102])
    assert fed(instance).rows_read == 1
    assert (lacking(instance), keys(table), entries(instance)) == (0, [*ALL, 100, 101, 102], FILES * ROWS + 3)


def fed_by_another(instance: Instance, table: Table) -> None:
    """Another process adds entries of the same files: the part, or the last commit, is refused."""
    with raises(Code.PROPOSAL_OUTDATED):
        fed(instance, [wait, lambda: killed(instance, 1)])
    with raises(Code.PROPOSAL_OUTDATED):
        fed(instance, [lambda: fed(instance)])
    assert (entries(instance), lacking(instance), keys(table)) == (FILES * ROWS, 0, ALL)


def emptied_by_another(instance: Instance, table: Table) -> None:
    """Another process drops what the parts added: the last commit must not say that it is there."""
    fed(instance)
    index = instance.table("by_a")
    view = index.state().view
    assert view is not None
    assert view.index is not None
    anew = ProposeFeed((), index.version, view.version, view.version, anew=True, sequence=view.index.sequence)
    for key in range(100, 103):
        put(table, key)
    with raises(Code.PROPOSAL_OUTDATED):
        fed(instance, [wait, wait, lambda: index.commit(anew)])


Case = Callable[[Instance, Table], None]
CASES: tuple[Case, ...] = (
    killed_and_fed,
    killed_before_its_last_commit,
    compacted_meanwhile,
    rewritten_meanwhile,
    restored_meanwhile,
    late_parts,
    fed_by_another,
    emptied_by_another,
)


@pytest.mark.parametrize("case", CASES)
def test_an_index_that_is_built_in_parts_has_all_rows(memory_lake, table, case):
    case(memory_lake, table)


def _uncovered_by_sequence(state: Any, view: Any) -> Sequence[Any]:
    return second_key.uncovered(state, replace(view, index=replace(view.index, files=())))


def _unchecked(*args: Any, covered: Any, **options: Any) -> ProposeFeed:
    return ProposeFeed(*args, **options)


def _anew_at_first(files: Any, base: int, since: int, until: int, **options: Any) -> ProposeFeed:
    return ProposeFeed(files, base, since, until, **{**options, "anew": not since, "covered": ()})


def _of_no_file(files: Any, base: int, since: int, _covered: Any) -> ProposeEntries:
    return ProposeEntries(files, base, since, ())


BUGS: tuple[tuple[str, Variant, Case], ...] = (
    ("the first build drops its parts", instead(index_feed, "ProposeFeed", _anew_at_first), killed_and_fed),
    ("the last commit does not ask for the parts", instead(index_feed, "ProposeFeed", _unchecked), emptied_by_another),
)
REFUSED: tuple[tuple[str, Variant, Case], ...] = (
    (
        "the parts of a killed feed are made again",
        instead(index_feed, "uncovered", _uncovered_by_sequence),
        killed_and_fed,
    ),
    ("a part does not say what it has", instead(index_feed, "ProposeEntries", _of_no_file), late_parts),
)
"""Bugs of a feed that the log refuses."""


@pytest.mark.parametrize(("variant", "case"), [pytest.param(variant, case, id=name) for name, variant, case in REFUSED])
def test_a_planted_bug_is_refused(memory_lake, table, variant, case):
    with planted(variant), raises(Code.PROPOSAL_OUTDATED):
        case(memory_lake, table)


@pytest.mark.parametrize(("variant", "case"), [pytest.param(variant, case, id=name) for name, variant, case in BUGS])
def test_a_planted_bug_is_found(memory_lake, table, variant, case):
    with planted(variant), pytest.raises((AssertionError, pytest.fail.Exception)):
        case(memory_lake, table)


def test_an_index_answers_until_it_is_built_anew(memory_lake, table):
    fed(memory_lake)
    put(table, 1, a=6)
    before, objects = entries(memory_lake), sum(1 for _ in memory_lake.storage.list("tables/"))
    killed(memory_lake, 2, anew=True)
    assert (entries(memory_lake), keys(table, 6)) == (before, [1])
    assert sum(1 for _ in memory_lake.storage.list("tables/")) == objects
    report = fed(memory_lake, anew=True)
    assert (report.rows_read, report.anew, entries(memory_lake), lacking(memory_lake)) == (
        before + 1,
        True,
        before + 1,
        0,
    )
    assert (keys(table), keys(table, 6)) == ([0, *ALL[2:]], [1])


def test_a_part_that_fails_costs_those_before_it_nothing(memory_lake, table):
    damaged = max(table.state().referenced().values(), key=lambda file: file.id)
    name = data_name(table.id, damaged)
    data = memory_lake.storage.get(name)
    assert data is not None
    memory_lake.storage.delete([name])
    with raises(Code.DATA_FILE_MISSING):
        feed_index(memory_lake.table("by_a"), table, part_rows=1)
    memory_lake.storage.create(name, data)
    assert feed_index(memory_lake.table("by_a"), table, part_rows=1).rows_read == ROWS
    assert (entries(memory_lake), keys(table)) == (FILES * ROWS, ALL)


@pytest.mark.parametrize("anew", [False, True])
def test_parts_are_tasks_of_an_executor(memory_lake, table, anew):
    index = memory_lake.table("by_a")
    with Pipeline(memory_lake, launcher="this-thread") as pipeline:
        workers = Workers(entries_tasks(pipeline.executor, Root(memory_lake.url)), lambda: 2)
        report = feed_index(index, table, anew=anew, workers=workers, part_rows=2 * ROWS)
        assert (report.rows_read, keys(table)) == (FILES * ROWS, ALL)
        put(table, 100)
        assert pipeline.refresh("by_a").rows_read == 1
    assert {file.rows for file in index.state().referenced().values()} == {2 * ROWS, 1}
