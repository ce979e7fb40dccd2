"""Random folders with hidden names, links and odd spellings: every way in reads the files that the rule means, once.

The expected files are found by a walk of this module alone, over the tree as it was drawn: names, not system calls.
Each file holds one row with its own number, so that rows show which files were read.
"""

import itertools
import os
import random
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from lakebed import DamagedError, NotFoundError, Schema, UsageError, clock
from lakebed.storage import connect
from lakebed.upkeep.migration.foreign_table import SourceLocation
from lakebed.upkeep.migration.hive import open_hive
from lakebed.write.sources import find_files
from tests.soaked import few

NAMES = ["a", "b", "p=1", "_t", ".s", "_q=2", "x.y", "_temporary", "0"]
FILES = [
    "a.parquet",
    "b.PARQUET",
    "_c.parquet",
    ".d.parquet",
    "000000_0",
    "e.pq",
    "_SUCCESS",
    ".a.parquet.crc",
    "n.txt",
]
GLOBS = [
    "*",
    "**",
    "*.parquet",
    "*/*",
    "**/*.parquet",
    "?/*",
    "[ab]/**",
    "_*",
    "_*/**",
    "**/_*",
    ".*",
    "*/*.p*",
    "**/**",
    "p=*",
]
PARQUET = (".parquet", ".parq", ".pq")


class Tree:
    """A folder of random folders and files; ``links`` lead to folders or files of it, as paths from its root."""

    def __init__(self, chance, root):
        self.root, self.files, self.links = root, {}, {}
        folders = [()]
        for _ in range(chance.randrange(1, 7)):
            parent = chance.choice(folders)
            folder = (*parent, chance.choice(NAMES))
            if len(folder) < 4 and folder not in folders:
                folders.append(folder)
        for number in range(chance.randrange(1, 12)):
            path = (*chance.choice(folders), chance.choice(FILES))
            self.files.setdefault(path, number)
        self.folders = set(folders)
        for _ in range(chance.randrange(4)):
            link = (*chance.choice(folders), chance.choice(["l", "m.parquet", "_l", "z"]))
            if link not in self.files and link not in self.folders and link not in self.links:
                self.links[link] = chance.choice([*self.files, *folders])
        for folder in folders:
            root.joinpath(*folder).mkdir(parents=True, exist_ok=True)
        for path, number in self.files.items():
            pq.write_table(pa.table({"k": [number]}), root.joinpath(*path))
        for link, target in self.links.items():
            root.joinpath(*link).symlink_to(root.joinpath(*target))

    def reached(self, start=(), depth=7):
        """Yield each path from a folder to a file through links too, with the number of the file."""
        for child in (*self.files, *self.folders, *self.links):
            if child[:-1] != start or child == ():
                continue
            place = self.links.get(child, child)
            if place in self.files:
                yield child[-1:], self.files[place]
            elif depth:
                yield from (((child[-1], *rest), number) for rest, number in self.reached(place, depth - 1))


def hidden(name):
    return name[0] == "." or (name[0] == "_" and "=" not in name)


def is_meant(names, pattern, suffixes):
    """Return whether a file is meant, tried for each way to divide its names among the parts of a glob."""
    if not pattern:
        return not any(map(hidden, names)) and names[-1].lower().endswith(suffixes)

    def fits(names, parts):
        if not parts:
            return not names
        if parts == ("**",):
            return bool(names) and not any(map(hidden, names))
        if parts[0] == "**":
            return any(fits(names[n:], parts[1:]) and not any(map(hidden, names[:n])) for n in range(len(names) + 1))
        if not names or (hidden(names[0]) and parts[0][0] != names[0][0]):
            return False
        expression = re.escape(parts[0]).replace(r"\*", ".*").replace(r"\?", ".").replace(r"\[ab\]", "[ab]")
        return re.fullmatch(expression, names[0]) is not None and fits(names[1:], parts[1:])

    if fits(names, pattern):
        return True
    return any(fits(names[:cut], pattern) and is_meant(names[cut:], (), suffixes) for cut in range(1, len(names)))


def expected(tree, pattern=(), suffixes=PARQUET):
    return {number for names, number in tree.reached() if is_meant(names, pattern, suffixes)}


def numbers(files):
    return sorted(pq.read_table(file.url)["k"][0].as_py() for file in files)


def found(source, **how):
    try:
        return numbers(find_files(source, **how))
    except NotFoundError:
        return []


@pytest.mark.parametrize("seed", few(range(60), 20))
def test_a_folder_and_every_glob_mean_the_same_files_as_a_walk_by_hand(tmp_path, seed):
    tree = Tree(random.Random(seed), tmp_path)
    assert found(tmp_path) == sorted(expected(tree))
    for pattern in GLOBS:
        glob = f"{tmp_path}/{pattern}"
        assert found(glob, suffixes=PARQUET) == sorted(expected(tree, tuple(pattern.split("/")))), pattern
        assert found(f"file://{glob}") == found(glob), pattern


@pytest.mark.parametrize("seed", few(range(60, 80), 8))
def test_every_way_in_reads_the_files_that_a_folder_or_glob_means(tmp_path, seed):
    chance = random.Random(seed)
    tree = Tree(chance, tmp_path / "in")
    lake = lakebed.create(f"memory://{clock.random_token()}")
    for number, pattern in enumerate(["", *chance.sample(GLOBS, 3)]):
        wanted = sorted(expected(tree, tuple(filter(None, pattern.split("/")))))
        source = f"{tmp_path}/in/{pattern}"
        table = lake.create_table(f"t{number}", Schema({"k": "int64"}))
        try:
            table.write(source)
            submitted = {os.path.realpath(file.url) for file in table.submit(source).files}
        except NotFoundError:
            assert wanted == []
            continue
        assert table.scan().read_all()["k"].to_pylist() == wanted
        assert sorted(tree.files[Path(path).relative_to(tmp_path / "in").parts] for path in submitted) == wanted


@pytest.mark.parametrize("seed", range(80, 110))
def test_a_migration_of_folders_reads_every_file_that_is_not_hidden(tmp_path, seed):
    tree = Tree(random.Random(seed), tmp_path)
    wanted = sorted(expected(tree, suffixes=("",)))
    try:
        source = open_hive(SourceLocation(str(tmp_path), connect(f"memory://{clock.random_token()}")))
    except NotFoundError:
        assert wanted == []
        return
    assert sorted(itertools.chain(*(batch["k"].to_pylist() for batch in source.batches()))) == wanted
    assert source.rows == len(wanted)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not Parquet at all, of some length", b"Obj\x01"])
def test_a_migration_of_folders_refuses_a_file_that_is_not_parquet(tmp_path, content):
    (tmp_path / "p=1").mkdir()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "p=1" / "part-0.parquet")
    (tmp_path / "p=1" / "000001_0").write_bytes(content)
    with pytest.raises(DamagedError, match=r"p=1/000001_0 cannot be read as Parquet: .*[^.]\. Restore it"):
        open_hive(SourceLocation(str(tmp_path), connect(f"memory://{clock.random_token()}")))


def test_a_migration_of_folders_leaves_out_the_instance_that_lies_among_them(tmp_path):
    lake = lakebed.create(tmp_path / "lake")
    lake.create_table("t", Schema({"k": "int64"})).write(pa.table({"k": [7]}))
    pq.write_table(pa.table({"k": [1]}), tmp_path / "000000_0")
    source = open_hive(SourceLocation(str(tmp_path), connect(str(tmp_path / "lake"))))
    assert source.rows == 1


SPELLINGS = [
    "{root}/in/a.parquet",
    "{root}/in/../in/a.parquet",
    "{root}//in//a.parquet",
    "{root}/in/./a.parquet",
    "file://{root}/in/a.parquet",
    "file://{root}/in/../in/a.parquet",
    "file://{root}/in/%61.parquet",
    "{root}/folder-link/a.parquet",
    "{root}/file-link.parquet",
    "{root}/link-to-link.parquet",
    "{root}/in",
    "{root}/folder-link",
    "{root}/in/*.parquet",
    "{root}/**/a.parquet",
    "{root}/f*.parquet",
]


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(range(len(SPELLINGS)), 2)))
def test_one_file_under_two_spellings_is_refused_by_every_way_in(tmp_path, first, second):
    pair = spelt(tmp_path, first, second)
    with pytest.raises(UsageError, match="is named twice"):
        find_files(pair)


@pytest.mark.parametrize("second", range(1, len(SPELLINGS)))
def test_a_write_and_a_submission_refuse_one_file_under_two_spellings(tmp_path, second, monkeypatch):
    pair = spelt(tmp_path, 0, second)
    table = lakebed.create(f"memory://{clock.random_token()}").create_table("t", Schema({"k": "int64"}))
    for call in (table.write, table.submit):
        with pytest.raises(UsageError, match="is named twice"):
            call(pair)
    monkeypatch.chdir(tmp_path / "in")
    with pytest.raises(UsageError, match="is named twice"):
        table.write(["a.parquet", pair[1]])
    assert table.version == 1


def spelt(root, *places):
    (root / "in").mkdir()
    pq.write_table(pa.table({"k": [1]}), root / "in" / "a.parquet")
    (root / "folder-link").symlink_to(root / "in")
    (root / "file-link.parquet").symlink_to(root / "in" / "a.parquet")
    (root / "link-to-link.parquet").symlink_to(root / "file-link.parquet")
    return [SPELLINGS[place].format(root=root) for place in places]


def test_a_folder_that_is_linked_into_itself_is_read_once(tmp_path):
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "in" / "a.parquet")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    for source in (tmp_path / "in", f"{tmp_path}/in/**", f"{tmp_path}/in/*", f"{tmp_path}/in/**/*.parquet"):
        assert [Path(file.url).name for file in find_files(source)] == ["a.parquet"]
