"""The rules of the house that no linter knows, run over the tree itself.

Each rule is a function from a module to the places that break it, with a small drawing of a breach beside it: a rule
that finds nothing anywhere has to prove that it can find something.
"""

from __future__ import annotations

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass, is_dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import lakebed
from lakebed import Error, errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

# Longer than this and it does not fit one screen, or one sitting.
FUNCTION_LINES_MAX = 60
MODULE_LINES_MAX = 700
# From this size on, a header has rules, errors or a source beside its first line.
HEADER_MODULE_LINES = 60
# More functions of one name, each private to its module, have nothing in common but a poor name.
PRIVATE_NAMES_MAX = 3

# Names that say nothing about what is in the box; `renames` and `information` are words of their own.
BANNED_WORDS = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "handler", "info"}
LEFT_UNDONE = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")

# What only some calls need, and costs tenths of a second.
HEAVY = {
    "pyspark",
    "pandas",
    "datafusion",
    "obstore",
    "pyarrow.compute",
    "pyarrow.dataset",
    "sqlalchemy",
    "psycopg",
    "asyncio",
    "secrets",
}
# What no lookup needs: the ways to write, and to read much.
UNREAD = {
    "lakebed.files.parquet.file_writer", "lakebed.files.parquet.row_groups", "lakebed.files.sorting",
    "lakebed.read.rows.datafusion_scan", "lakebed.read.rows.multi_get", "lakebed.read.rows.slices", "lakebed.upkeep",
    "lakebed.write",
}  # fmt: skip


parsed = functools.cache(ast.parse)


@pytest.fixture(scope="module", autouse=True)
def _trees_of_this_module_only() -> Iterator[None]:
    """The trees are a million objects, which each later search for garbage in this process would look at."""
    yield
    parsed.cache_clear()


@dataclass(frozen=True, slots=True)
class Module:
    """A module's text and where it lies."""

    path: Path
    text: str

    @property
    def tree(self) -> ast.Module:
        return parsed(self.text)


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def words_of(name: str) -> set[str]:
    """`TableInfo`, `table_info` and `tableInfo` are all table and info."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def definitions_in(module: Module) -> Iterator[Definition]:
    for node in ast.walk(module.tree):
        if isinstance(node, Definition):
            yield node


def lines_without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node, clean=False) is None:
        return lines
    docstring = node.body[0]
    return lines - ((docstring.end_lineno or docstring.lineno) - docstring.lineno + 1)


def long_functions(module: Module) -> Iterator[str]:
    for node in definitions_in(module):
        if isinstance(node, ast.ClassDef):
            continue
        lines = lines_without_docstring(node)
        if lines > FUNCTION_LINES_MAX:
            yield f"{module.path}:{node.lineno}: {node.name} has {lines} lines, of {FUNCTION_LINES_MAX} at most"


def long_modules(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES_MAX:
        yield f"{module.path}: {lines} lines, of {MODULE_LINES_MAX} at most"


def empty_names(module: Module) -> Iterator[str]:
    named = [(1, part) for part in module.path.with_suffix("").parts]
    named += [(node.lineno, node.name) for node in definitions_in(module)]
    for line, name in named:
        for word in sorted(words_of(name) & BANNED_WORDS):
            yield f"{module.path}:{line}: {name} says {word!r}, which says nothing"


def left_undone(module: Module) -> Iterator[str]:
    for version, line in enumerate(module.text.splitlines(), 1):
        if found := LEFT_UNDONE.search(line):
            yield f"{module.path}:{version}: {found[0]}; do it, or write an issue"


def undocumented(module: Module) -> Iterator[str]:
    if module.text.strip() and ast.get_docstring(module.tree) is None:
        yield f"{module.path}:1: the module does not say what it is"
    for node in module.tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_") and ast.get_docstring(node) is None:
            yield f"{module.path}:{node.lineno}: {node.name} is public and has no docstring"


def short_headers(module: Module) -> Iterator[str]:
    header = ast.get_docstring(module.tree) or ""
    if len(module.text.splitlines()) >= HEADER_MODULE_LINES and "\n" not in header:
        yield f"{module.path}:1: the header is one line: add rules, errors or a source"


RULES = {
    rule.__name__: rule
    for rule in (long_functions, long_modules, empty_names, left_undone, undocumented, short_headers)
}

BREACHES = {
    "long_functions": "def f():\n" + "    f()\n" * FUNCTION_LINES_MAX,
    "long_modules": "\n" * (MODULE_LINES_MAX + 1),
    "empty_names": "class TableInfo:\n    pass\n",
    "left_undone": "f()  # " + "TO" + "DO: later\n",
    "undocumented": '"""A module."""\ndef f():\n    pass\n',
    "short_headers": '"""A module."""\n' + "\n" * HEADER_MODULE_LINES,
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_source_keeps(rule: Callable[[Module], Iterator[str]]) -> None:
    modules = [Module(path.relative_to(SOURCE), path.read_text("utf-8")) for path in sorted(SOURCE.rglob("*.py"))]
    assert modules, "no source found: the test looks in the wrong place"
    breaches = [breach for module in modules for breach in rule(module)]
    assert not breaches, "\n".join(breaches)


@pytest.mark.parametrize("name", RULES)
def test_a_breach_is_found_of(name: str) -> None:
    breach = Module(Path("lakebed/read/drawing.py"), BREACHES[name])
    assert len(list(RULES[name](breach))) == 1


def homonyms(modules: Iterable[Module]) -> dict[str, list[str]]:
    """Names of private functions of more modules than may share one, with these modules."""
    found: dict[str, list[str]] = {}
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_") and not node.name.startswith("__"):
                found.setdefault(node.name, []).append(module.path.as_posix())
    return {name: homes for name, homes in found.items() if len(homes) > PRIVATE_NAMES_MAX}


def test_the_name_of_a_private_function_says_what_it_does() -> None:
    """`_value` and `_bounds` stood in four modules each; functions of one name had nothing in common."""
    drawing = [Module(Path(f"lakebed/{number}.py"), "def _value(): ...") for number in range(PRIVATE_NAMES_MAX + 1)]
    assert list(homonyms(drawing)) == ["_value"]
    assert not homonyms(drawing[1:])
    paths = sorted(SOURCE.rglob("*.py"))
    assert not homonyms(Module(path.relative_to(SOURCE), path.read_text("utf-8")) for path in paths)


def test_a_long_docstring_does_not_make_a_long_function() -> None:
    drawing = 'def f():\n    """' + "A word.\n" * FUNCTION_LINES_MAX + '"""\n    f()\n'
    assert not list(long_functions(Module(Path("lakebed/read/drawing.py"), drawing)))


def modules_loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after the statement."""
    report = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", report], capture_output=True, check=True, text=True, timeout=60)
    return set(json.loads(ran.stdout))


def test_importing_lakebed_imports_no_library_and_nothing_of_its_own_but_errors() -> None:
    loaded = {
        name for name in modules_loaded_by("import lakebed") if name.partition(".")[0] not in sys.stdlib_module_names
    }
    assert loaded - modules_loaded_by("pass") == {
        "lakebed",
        "lakebed.errors",
        "lakebed.model",
        "lakebed.model.public_names",
        "lakebed.model.version",
    }


def test_the_first_lookup_of_a_process_imports_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    table = lakebed.create(str(tmp_path)).create_table("t", lakebed.Schema({"k": "string"}))
    for keys in ("ac", "bd"):
        table.write(pa.table({"k": list(keys)}))
    look = f"import lakebed; assert lakebed.open({str(tmp_path)!r}).table('t').get('c').num_rows == 1"
    assert not modules_loaded_by(look) & (HEAVY | UNREAD)


def test_the_first_lookup_of_a_process_defines_few_dataclasses(tmp_path: Path) -> None:
    """Each takes half a millisecond, a Struct a fortieth of that (docs/decisions/0066)."""
    lakebed.create(str(tmp_path)).create_table("t", lakebed.Schema({"k": "string"})).write(pa.table({"k": ["a"]}))
    program = (
        "import dataclasses, json, sys\nimport lakebed\n"
        f"assert lakebed.open({str(tmp_path)!r}).table('t').get('a').num_rows == 1\n"
        "named = [(name, value) for name, module in list(sys.modules.items()) if name.startswith('lakebed.')\n"
        "         for value in vars(module).values() if isinstance(value, type) and value.__module__ == name]\n"
        "print(json.dumps([f'{name}.{value.__name__}' for name, value in named if dataclasses.is_dataclass(value)]))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=60)
    defined = {name.removeprefix("lakebed.") for name in json.loads(ran.stdout)}
    assert defined - public_dataclasses() == {
        "model.partitions.Partitions", "model.settings.Described", "model.settings.Settings",
        "read.snapshot.handles.TableAddress", "read.snapshot.snapshot.Snapshot",
        "table.opening.OpenArguments",
    }  # fmt: skip


def public_dataclasses() -> set[str]:
    """Those that ``import lakebed`` offers, by module and name."""
    offered = [(home, getattr(lakebed, name)) for name, home in lakebed._HOMES.items()]
    return {
        f"{home.removeprefix('lakebed.')}.{value.__name__}"
        for home, value in offered
        if isinstance(value, type) and is_dataclass(value)
    }


def test_a_public_name_has_one_home_to_people_and_to_type_checkers() -> None:
    """The imports that only a type checker sees say where the others are found; what people use is in ``__all__``."""
    tree = ast.parse((SOURCE / "lakebed" / "__init__.py").read_text("utf-8"))
    (unseen,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    homes = {name: home for home, names in imports_in(unseen.body) for name in names}
    assert homes == lakebed._HOMES
    (errors,) = (names for home, names in imports_in(tree.body) if home == "lakebed.errors")
    called_by_ipython = ("load_ipython_extension", "unload_ipython_extension")
    assert sorted([*homes, *errors, "__version__"]) == sorted([*lakebed.__all__, "open", *called_by_ipython])


def imports_in(body: list[ast.stmt]) -> list[tuple[str | None, list[str]]]:
    """What is imported by ``from … import …``: the module and the names."""
    return [(node.module, [one.name for one in node.names]) for node in body if isinstance(node, ast.ImportFrom)]


def test_public_names_are_there_however_they_are_asked_for() -> None:
    ask = (
        "import lakebed, pickle; assert {*lakebed.__all__, 'open'} <= set(dir(lakebed)), 'dir'\n"
        "import builtins; from lakebed import *; assert Table is lakebed.Table\n"
        "assert not {name for name in {*dir(builtins)} & {*globals()} if name[0] != '_'}, 'shadowed'\n"
        "import lakebed.table.table; assert Table is lakebed.table.table.Table and pickle.loads(pickle.dumps(Table)) "
        "is Table\nassert all(getattr(lakebed, name) is not None for name in lakebed.__all__), 'all'\n"
        "assert not hasattr(lakebed, 'opne')"
    )
    assert "lakebed.table.instance" in modules_loaded_by(ask)


LOCKS = tuple(f"requirements{of}.lock" for of in ("", "-build", "-docs", "-release"))


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host_and_hashes_every_package(lock: str) -> None:
    text = (ROOT / lock).read_text("utf-8")
    assert not re.findall(r"://|--(?:extra-)?index-url|--find-links|\.(?:org|com|net|io|dev)\b", text)
    packages = re.split(r"\n(?=\S)", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip())
    unhashed = [package for package in packages if "==" not in package or "--hash=sha256:" not in package]
    assert not unhashed


def test_the_locks_hold_every_package_that_the_project_asks_for() -> None:
    """A dependency added without `make lock` would be found only on a fresh machine."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extras = project["project"]["optional-dependencies"].values()
    asked = [*project["project"]["dependencies"], *(item for extra in extras for item in extra)]
    asked += [item for group in project["dependency-groups"].values() for item in group]
    locked = {
        found[1]
        for lock in LOCKS
        for found in re.finditer(r"^([a-z0-9-]+)==", (ROOT / lock).read_text("utf-8"), re.MULTILINE)
    }
    names = {re.split(r"[\[<>=!~; ]", item)[0].lower().replace("_", "-") for item in asked}
    assert names - {"lakebed"} <= locked


def test_every_module_has_its_place_in_the_layers() -> None:
    """A module that no layer names could import anything."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["id"] == "layers")
    placed = {name for layer in layers for name in re.findall(r"[\w.]+", layer)}
    homeless = []
    for path in sorted((SOURCE / "lakebed").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        names = {".".join(parts[:count]) for count in range(2, len(parts) + 1)}
        if parts[-1] != "__init__" and not names & placed:
            homeless.append(".".join(parts))
    assert not homeless


IN_LINES = ("lakebed.log", "lakebed.server.service", "lakebed.storage")


def imports_of(module: Module, names: set[str]) -> set[str]:
    """Return the modules of these names that a module imports, anywhere in it, for types too."""
    nodes = [node for node in ast.walk(module.tree) if isinstance(node, ast.ImportFrom) and node.module]
    found = {(node.module or "", f"{node.module}.{alias.name}") for node in nodes for alias in node.names}
    return names & {whole if whole in names else base for base, whole in found}


@pytest.mark.parametrize("package", IN_LINES)
def test_the_modules_of_a_package_import_each_other_in_one_direction(package: str) -> None:
    folder = SOURCE / package.replace(".", "/")
    paths = {".".join(path.relative_to(SOURCE).with_suffix("").parts): path for path in folder.rglob("*.py")}
    modules = {name: Module(path, path.read_text("utf-8")) for name, path in paths.items()}
    graph = {name: imports_of(module, modules.keys() - {name}) for name, module in modules.items()}
    assert sum(map(len, graph.values())) > len(graph) / 2
    TopologicalSorter(graph).prepare()
    busiest = max(graph, key=lambda name: len(graph[name]))
    graph[min(graph[busiest])].add(busiest)
    with pytest.raises(CycleError):
        TopologicalSorter(graph).prepare()


CIRCLE_MODULES_MAX = 2
"""Two modules that name each other can be read as one; a longer circle has to be read whole."""


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the groups of modules of which each imports, directly or not, all others of the group."""
    reached = {name: set(found) for name, found in graph.items()}
    for through, further in reached.items():
        for found in reached.values():
            if through in found:
                found.update(further)
    groups = {frozenset(other for other in found if name in reached[other]) for name, found in reached.items()}
    return {group for group in groups if len(group) > CIRCLE_MODULES_MAX}


def test_modules_import_each_other_in_circles_of_two_at_most() -> None:
    """Imports for types and inside functions count."""
    paths = {path: path.relative_to(SOURCE).with_suffix("").parts for path in SOURCE.rglob("*.py")}
    names = {path: ".".join(parts).removesuffix(".__init__") for path, parts in paths.items()}
    modules = {name: Module(path, path.read_text("utf-8")) for path, name in names.items() if name != "lakebed"}
    graph = {name: imports_of(module, modules.keys() - {name}) for name, module in modules.items()}
    assert not circles(graph)


def test_a_circle_is_found_through_any_import() -> None:
    texts = {
        "a": "from b import value",
        "b": "def late():\n    from c import value",
        "c": "if TYPE_CHECKING:\n    from a import Kind\n    from d import Kind",
        "d": "from c import Kind",
        "e": "from a import value",
    }
    modules = {name: Module(Path(f"{name}.py"), text) for name, text in texts.items()}
    graph = {name: imports_of(module, modules.keys() - {name}) for name, module in modules.items()}
    assert circles(graph) == {frozenset("abcd")}
    graph["b"].clear()
    assert not circles(graph)


# -- words ------------------------------------------------------------------------------------------------------

# Words of before, each with the one that is used in its place (docs/glossary.md).
OLD_WORDS = {
    "forget_line": "request_watermark", "forget line": "request watermark", "orphan horizon": "orphan cutoff",
    "retained_from": "earliest_retained_version", "base_number": "base_version", "side object": "sidecar",
    "side_objects": "sidecars", "stamp_us": "last_modified_us", "entry_stamp": "entry_last_modified",
    "raise_floor": "advance_log_start", "kept snapshot": "retained checkpoint", "intake": "conformer",
    "tally": "statistics", "hull": "sequence_span", "OfferFiles": "ProposeFiles", "chain_runs": "concatenate_runs",
    "mark_dead": "retire_files", "forget_files": "purge_files", "sweep_orphans": "delete_orphans",
    "split_leaves": "split_partitions", "leaf_rows": "partition_rows", "museum": "known_bad",
}  # fmt: skip


# Words that make people of programs and buildings of code, alone or as a part of a name.
PLAIN_WORDS = {
    "told": "reported", "door": "interface", "nobody": "no process", "somebody": "a process", "anybody": "a process",
    "whoever": "a process that", "whosever": "of any process", "whom": "which", "stranger": "unknown name",
    "deaf": "ignores it", "hear": "get an answer", "hears": "gets an answer", "heard": "got an answer",
    "hearing": "getting an answer", "he": "it", "his": "its", "him": "it",
}  # fmt: skip
# A user of Unix.
QUOTED = re.compile(r'"nobody"')


OLD_WORD = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, OLD_WORDS))})s?(?![\w-])")
UNPLAIN_WORD = re.compile(rf"(?<![^\W_])({'|'.join(PLAIN_WORDS)})s?(?![^\W_])", re.IGNORECASE)


def old_words(text: str) -> Iterator[str]:
    text = QUOTED.sub('""', text)
    found = [(word, OLD_WORDS[word[1]]) for word in OLD_WORD.finditer(text)]
    found += [(word, PLAIN_WORDS[word[1].lower()]) for word in UNPLAIN_WORD.finditer(text)]
    for word, now in found:
        yield f"line {text.count(chr(10), 0, word.start()) + 1}: {word[1]!r} is {now!r} now"


def test_no_word_of_before_comes_back() -> None:
    """In code, tests, benchmarks and documents, and in the names of files; decisions and the changelog keep theirs."""
    assert all(list(old_words(f"of the {old}s")) for old in OLD_WORDS | PLAIN_WORDS)
    assert all(list(old_words(f"def test_that_{old}_is({old.upper()}):")) for old in PLAIN_WORDS)
    assert not list(old_words('this other chat was "nobody"'))
    folders = ("src", "tests", "benchmarks", "examples", "scripts")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    files += [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    found = [
        f"{name}, {breach}"
        for path in files
        if path != Path(__file__)
        for name in [path.relative_to(ROOT).as_posix()]
        for breach in (*old_words(name), *old_words(path.read_text("utf-8")))
    ]
    assert not found, "\n".join(found)


def test_no_test_creates_an_instance_in_memory_that_another_could_meet() -> None:
    """It lives as long as the process, which runs many tests in any order; ``memory://{random_token()}`` is its own."""
    shared = re.compile(r"""create\(["']memory://""")
    assert shared.search("lakebed.create(" + '"memory://lake")')
    tests = (ROOT / "tests").rglob("*.py")
    assert not [path for path in tests if shared.search(path.read_text("utf-8"))]


def short_waits(text: str) -> Iterator[str]:
    """Places that give up after 1 to 59 seconds, which a loaded machine may take for anything."""
    waits = re.compile(r"(?:\.(?:wait|join|result)|settimeout)\((?:timeout=)?(\d+)(?:\.0)?\)|\btimeout=(\d+)\b")
    for number, line in enumerate(text.splitlines(), 1):
        yield from (f"line {number}: {wait[0]}" for wait in waits.finditer(line) if 1 < int(wait[1] or wait[2]) < 60)


def test_no_test_gives_up_while_a_loaded_machine_is_still_at_work() -> None:
    """`tests/waiting.py` has one limit for all; a shorter one is for what must not happen meanwhile."""
    assert list(short_waits("done.wait(5)")) == ["line 1: .wait(5)"]
    assert list(short_waits("run(words, timeout=30)")) == ["line 1: timeout=30"]
    assert not list(short_waits("done.wait(0.1), run(words, timeout=120)"))
    files = (path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__))
    found = [f"{path.relative_to(ROOT)}, {wait}" for path in files for wait in short_waits(path.read_text("utf-8"))]
    assert not found, "\n".join(found)


ERROR_CLASSES = {name for name, found in vars(errors).items() if isinstance(found, type) and issubclass(found, Error)}


def vague_expectations(text: str) -> Iterator[str]:
    """Places that expect an error of Lakebed by its class, and ask for neither its code nor its message."""
    # Most files expect no error; to parse them all takes seconds.
    for block in ast.walk(ast.parse(text)) if "pytest.raises" in text else ():
        for item in block.items if isinstance(block, ast.With | ast.AsyncWith) else ():
            call = item.context_expr
            if item.optional_vars is None and isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.raises":
                expected = re.findall(r"[\w.]+", ast.unparse(call.args[0]))
                names = {name.removeprefix("lakebed.").removeprefix("errors.") for name in expected}
                if names & ERROR_CLASSES and not {word.arg for word in call.keywords} & {"match", "check"}:
                    yield f"line {call.lineno}: {ast.unparse(call)}"


def test_errors_are_expected_by_their_codes_or_messages() -> None:
    """`tests/raising.py` compares codes."""
    assert list(vague_expectations("with pytest.raises((ValueError, lakebed.UsageError)):\n    go()"))
    assert not list(vague_expectations("with pytest.raises(Error, match='a'), raises(Code.URL_INVALID):\n    go()"))
    assert not list(vague_expectations("with pytest.raises(UsageError) as caught:\n    go()"))
    files = (path for path in (ROOT / "tests").rglob("*.py"))
    found = [f"{path.relative_to(ROOT)}, {it}" for path in files for it in vague_expectations(path.read_text("utf-8"))]
    assert not found, "\n".join(found)


PATCHES_MAX = 73
"""Places in tests that replace code. Fewer is better: lower it, and never raise it."""


def test_tests_replace_no_more_code() -> None:
    """A limit is a value that is passed in, and a store fails by `lakebed.testing.faults`; `tests/variants.py` plants
    the faults of known-bad variants."""
    counts = {
        path.relative_to(ROOT).as_posix(): path.read_text("utf-8").count(".setattr(")
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__)
    }
    assert sum(counts.values()) <= PATCHES_MAX, {name: count for name, count in counts.items() if count}


EMPTY_LAKE = re.compile(r"return lakebed\.create\((str\()?(tmp_path( / 'lake')?|f'memory://\{[^}]*\}')\)?\)")


def test_empty_lakes_are_the_shared_ones() -> None:
    """A fixture that only makes an empty instance stands in tests/lakes.py, once for a disk and once for memory."""
    found = [
        f"{path.relative_to(ROOT)}, {node.name}"
        for path in (ROOT / "tests").rglob("*.py")
        if path.name != "lakes.py" and "return lakebed.create(" in (text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(one) for one in node.decorator_list)
        if EMPTY_LAKE.fullmatch(
            "\n".join(map(ast.unparse, node.body if ast.get_docstring(node) is None else node.body[1:]))
        )
    ]
    assert not found, found


def test_no_two_classes_have_one_name() -> None:
    """Nor two modules, but for plan and run, which say the same of each folder, and the nouns of the command line."""
    paths = sorted((SOURCE / "lakebed").rglob("*.py"))
    classes: dict[str, list[str]] = {}
    modules: dict[str, list[str]] = {}
    for path in paths:
        where = path.relative_to(SOURCE).as_posix()
        for node in ast.walk(parsed(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(where)
        if path.parent.name != "cli" and path.stem not in ("__init__", "plan", "run"):
            modules.setdefault(path.stem, []).append(where)
    assert not {name: where for name, where in (classes | modules).items() if len(where) > 1}
