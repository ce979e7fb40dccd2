"""Parses the statements of SQL that change something: INSERT, UPDATE, DELETE, CREATE, DROP, TRUNCATE. Pure.

Only the head of a statement is parsed here: its words, names, and where its expressions and queries begin and end.
These are returned as text, and evaluated as parts of queries by the engine that reads (:mod:`lakebed.read.sql`), so
that an expression has one meaning in all of SQL. Tokens are read one by one and not kept.

Core. :func:`parse`, :data:`ChangeStatement`, :func:`changes`. Errors. UsageError with the token and its place.

Source: docs/decisions/0084.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from lakebed.engine.complexity import TEXT_MAX
from lakebed.engine.sql_types import type_of_words
from lakebed.engine.tokens import Token, tokens_of
from lakebed.errors import Code, Error
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    from typing import NoReturn

    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class InsertStatement:
    """INSERT INTO: the columns (none: all, in order), and the query, with blanks in place of what is before it."""

    table: str
    columns: tuple[str, ...]
    query: str
    is_values: bool


@dataclass(frozen=True, slots=True)
class DeleteStatement:
    """DELETE FROM: the name of the table in the condition, and the condition; None: all rows."""

    table: str
    alias: str
    where: str | None


@dataclass(frozen=True, slots=True)
class UpdateStatement:
    """UPDATE: the expressions by column, and the condition; None: all rows."""

    table: str
    alias: str
    assignments: tuple[tuple[str, str], ...]
    where: str | None


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE."""

    name: str
    type: pa.DataType
    nullable: bool


@dataclass(frozen=True, slots=True)
class CreateTableStatement:
    """CREATE TABLE: its columns, or the query that gives them, with blanks in place of what is before it.

    ``options`` are those of WITH.
    """

    table: str
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...]
    options: Mapping[str, str | int | float | bool] = field(default_factory=dict)
    query: str | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class CreateIndexStatement:
    """CREATE INDEX."""

    index: str
    table: str
    columns: tuple[str, ...]
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropStatement:
    """DROP TABLE or DROP INDEX, as ``what`` says."""

    what: str
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class TruncateStatement:
    """TRUNCATE."""

    table: str


ChangeStatement: TypeAlias = (
    "InsertStatement | DeleteStatement | UpdateStatement | CreateTableStatement | CreateIndexStatement | DropStatement"
    " | TruncateStatement"
)


BEGINNINGS = ("insert", "update", "delete", "create", "drop", "truncate")

_NO_TRANSACTIONS = "a statement is a commit of its own, so transactions are not begun or ended: leave it out"

REFUSED = {
    "begin": _NO_TRANSACTIONS,
    "start": _NO_TRANSACTIONS,
    "commit": _NO_TRANSACTIONS,
    "end": _NO_TRANSACTIONS,
    "savepoint": _NO_TRANSACTIONS,
    "rollback": "a statement is a commit of its own; Table.restore (`lakebed restore`) takes a table back to a version",
    "replace": "write INSERT INTO: in a table that merges by latest it replaces the rows of its keys",
    "upsert": "write INSERT INTO: in a table that merges by latest it replaces the rows of its keys",
    "merge": "write the rows: a table that merges by latest keeps the newest of each key",
    "alter": "use Table.alter (`lakebed table alter`), or Instance.rename_table",
    "copy": "use `lakebed export` and `lakebed import`, or to_pandas and to_polars of the rows",
    "set": "settings are changed by Instance.set and Table.set (`lakebed settings set`)",
    "grant": "use `lakebed role create` and `lakebed token create`",
    "revoke": "use `lakebed role drop` and `lakebed token drop`",
    "vacuum": "use `lakebed gc`",
    "optimize": "use `lakebed compact`",
    "use": "an instance has one schema; name the instance when it is opened",
}
"""The first words of statements that are not supported, and what to do instead."""

_QUERIES = ("select", "values", "with", "table", "from")

_ENDS = {"(": ")", "[": "]", "{": "}"}


def changes(text: str) -> bool:
    """Return whether a statement is not a query: whether it is one for :func:`parse`, which may refuse it."""
    first = next(tokens_of(text), None)
    return first is not None and first.kind == "word" and first.text.lower() in (*BEGINNINGS, *REFUSED)


def parse(text: str) -> ChangeStatement:
    """Return the statement. Raises UsageError for one that is not understood, or that has no meaning here."""
    if len(text) > TEXT_MAX:
        raise Code.SQL_TOO_COMPLEX(
            f"the statement has {len(text):,} characters, and at most {TEXT_MAX:,} are allowed: write the rows with "
            "Table.write (`lakebed write`), or put them into a table, and INSERT INTO … SELECT from it"
        )
    parser = _Parser(text)
    first = parser.next
    word = first.text.lower() if first is not None and first.kind == "word" else ""
    if word in REFUSED and first is not None:
        raise Code.SQL_INVALID(f"{word.upper()} is not supported: {REFUSED[word]}")
    parse_rest = _PARSERS.get(word)
    if parse_rest is None:
        if word in (*_QUERIES, "show", "describe", "desc", "summarize", "explain"):
            raise Code.SQL_INVALID(f"{word.upper()} reads, and changes nothing: run it with Instance.sql")
        parser.fail(" or ".join(one.upper() for one in BEGINNINGS))
    parser.take()
    return parse_rest(parser)


def _insertion(parser: _Parser) -> InsertStatement:
    if parser.is_word("overwrite"):
        parser.refuse("rows are not overwritten: TRUNCATE the table first, or INSERT, which replaces rows of the keys")
    parser.word("into")
    table = parser.table()
    columns: tuple[str, ...] = ()
    if parser.is_sign("(") and not (parser.after is not None and parser.after.text.lower() in (*_QUERIES, "(")):
        columns = parser.names()
    if parser.is_word("default"):
        parser.refuse("columns have no defaults: give the values")
    if not (parser.is_sign("(") or parser.is_one_of(_QUERIES)):
        parser.fail("VALUES or SELECT")
    is_values = parser.is_word("values")
    return InsertStatement(table, columns, parser.query(), is_values)


def _deletion(parser: _Parser) -> DeleteStatement:
    parser.word("from")
    table = parser.table()
    alias = parser.alias(table, ("where", "using", "returning"))
    if parser.is_word("using"):
        parser.refuse("DELETE has no USING: write WHERE key IN (SELECT …), or MERGE INTO … WHEN MATCHED THEN DELETE")
    where = parser.where()
    parser.end()
    return DeleteStatement(table, alias, where)


def _assignments(parser: _Parser) -> UpdateStatement:
    table = parser.table()
    alias = parser.alias(table, ("set",))
    parser.word("set")
    found = [parser.assignment((alias, table))]
    while parser.took_sign(","):
        found.append(parser.assignment((alias, table)))
    if parser.is_word("from"):
        parser.refuse("UPDATE has no FROM: write MERGE INTO … USING … WHEN MATCHED THEN UPDATE SET …")
    where = parser.where()
    parser.end()
    return UpdateStatement(table, alias, parser.once(found), where)


def _creation(parser: _Parser) -> CreateTableStatement | CreateIndexStatement:
    if parser.is_word("index"):
        return _create_index(parser)
    if parser.is_word("view") or parser.is_word("materialized"):
        parser.refuse("views are made with Instance.create_view_table (`lakebed view create`)")
    if parser.is_word("or"):
        parser.refuse("a table is not replaced: DROP TABLE IF EXISTS it first, in a statement of its own")
    if parser.is_word("unique"):
        parser.refuse("an index does not make values unique: only the row key is, in a table that merges by latest")
    if parser.is_word("temp") or parser.is_word("temporary") or parser.is_word("external"):
        parser.refuse("tables are neither temporary nor external: leave the word out")
    parser.word("table")
    if_not_exists = parser.took_words("if", "not", "exists")
    table = parser.table()
    columns: list[ColumnDefinition] = []
    primary_key: tuple[str, ...] = ()
    if parser.took_sign("("):
        while True:
            if parser.is_word("primary") and parser.after is not None and parser.after.says("key"):
                parser.took_words("primary", "key")
                if primary_key:
                    parser.fail_before("one PRIMARY KEY")
                primary_key = parser.names()
            else:
                columns.append(parser.column())
                if parser.took_words("primary", "key"):
                    if primary_key:
                        parser.fail_before("one PRIMARY KEY; write PRIMARY KEY (a, b) for several columns")
                    primary_key = (columns[-1].name,)
                parser.check_constraints()
            if not parser.took_sign(","):
                break
        parser.sign(")")
    options = parser.options() if parser.took_word("with") else {}
    query = None
    if parser.took_word("as"):
        if not (parser.is_sign("(") or parser.is_one_of(_QUERIES)):
            parser.fail("SELECT")
        query = parser.query()
    else:
        parser.end()
    if query is None and not columns:
        raise Code.SQL_INVALID(f"CREATE TABLE {table} has no columns: give them in brackets, or a query after AS")
    if query is not None and columns:
        raise Code.SQL_INVALID(
            f"CREATE TABLE {table} has column {columns[0].name} and a query, which gives all columns: cast them in the "
            "query, and leave only PRIMARY KEY (…) in the brackets"
        )
    if not primary_key:
        raise Code.SQL_INVALID(f"CREATE TABLE {table} has no key: add PRIMARY KEY (…) in the brackets")
    return CreateTableStatement(table, tuple(columns), primary_key, options, query, if_not_exists)


def _create_index(parser: _Parser) -> CreateIndexStatement:
    parser.word("index")
    if_not_exists = parser.took_words("if", "not", "exists")
    index = parser.table()
    parser.word("on")
    table = parser.table()
    if parser.is_word("using"):
        parser.refuse("there is one kind of index: leave USING out")
    columns = parser.names()
    parser.end()
    return CreateIndexStatement(index, table, columns, if_not_exists)


def _dropping(parser: _Parser) -> DropStatement:
    if not (parser.is_word("table") or parser.is_word("index")):
        parser.fail("TABLE or INDEX")
    what = parser.take().text.lower()
    if_exists = parser.took_words("if", "exists")
    name = parser.table()
    if parser.is_sign(","):
        parser.refuse("a statement drops one table or index: write one for each")
    parser.end()
    return DropStatement(what, name, if_exists)


def _truncation(parser: _Parser) -> TruncateStatement:
    parser.took_word("table")
    table = parser.table()
    parser.end()
    return TruncateStatement(table)


_PARSERS: Mapping[str, Callable[[_Parser], ChangeStatement]] = {
    "insert": _insertion,
    "delete": _deletion,
    "update": _assignments,
    "create": _creation,
    "drop": _dropping,
    "truncate": _truncation,
}


# -- the parser ---------------------------------------------------------------------------------------------------


class _Parser:
    """Reads the tokens of a statement; ``next`` is the one that is not read yet, and ``after`` the one behind it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokens_of(text)
        self._before: Token | None = None
        self.next, self.after = (*islice(self._tokens, 2), None, None)[:2]

    # -- tokens ---------------------------------------------------------------------------------------------------

    def take(self) -> Token:
        """Read a token. Raises UsageError at the end."""
        found = self.next
        if found is None:
            self.fail("more")
        self._before, self.next, self.after = found, self.after, next(self._tokens, None)
        return found

    def is_word(self, word: str) -> bool:
        """Return whether the next token is this word, without quotes."""
        return self.next is not None and self.next.kind == "word" and self.next.says(word)

    def is_one_of(self, words: tuple[str, ...]) -> bool:
        """Return whether the next token is one of these words."""
        return any(map(self.is_word, words))

    def is_sign(self, sign: str) -> bool:
        """Return whether the next token is this sign."""
        return self.next is not None and self.next.kind == "sign" and self.next.text == sign

    def took_word(self, word: str) -> bool:
        """Read the word, if it is next."""
        return self.is_word(word) and bool(self.take())

    def took_words(self, *words: str) -> bool:
        """Read the words, if the first of them is next."""
        if not self.is_word(words[0]):
            return False
        for word in words:
            self.word(word)
        return True

    def took_sign(self, sign: str) -> bool:
        """Read the sign, if it is next."""
        return self.is_sign(sign) and bool(self.take())

    def word(self, word: str) -> None:
        """Read this word. Raises UsageError if another token is next."""
        if not self.took_word(word):
            self.fail(word.upper())

    def sign(self, sign: str) -> None:
        """Read this sign. Raises UsageError if another token is next."""
        if not self.took_sign(sign):
            self.fail(f"'{sign}'")

    def end(self) -> None:
        """Read the end. Raises UsageError if there is more."""
        self.took_sign(";")
        if self.is_word("returning"):
            self.refuse("changes return the count of their rows and no rows: read them with a query")
        if self.next is not None:
            if self._before is not None and self._before.text == ";":
                self.refuse("the text has several statements: give one at a time; each is a commit of its own")
            self.fail("the end of the statement")

    # -- errors ---------------------------------------------------------------------------------------------------

    def fail(self, expected: str) -> NoReturn:
        """Raise UsageError: something else is next."""
        known = ""
        if self.next is not None and self.next.kind == "word":
            known = did_you_mean(self.next.text.upper(), expected.replace(",", " ").split())
        found = "the end" if self.next is None else f"{self.next.text[:40]!r}"
        raise self._error(f"syntax error at {found} {self._place()}: expected {expected}{known}")

    def fail_before(self, expected: str) -> NoReturn:
        """Raise UsageError: the token that was read is too much."""
        assert self._before is not None
        raise self._error(
            f"syntax error at {self._before.text[:40]!r} {self._place(self._before)}: expected {expected}"
        )

    def refuse(self, remedy: str) -> NoReturn:
        """Raise UsageError: the next token is understood, and has no meaning here."""
        found = "the end" if self.next is None else self.next.text[:40]
        raise self._error(f"{found} {self._place()} is not supported: {remedy}")

    def _error(self, text: str) -> Error:
        return Code.SQL_INVALID(f"{text} (docs/sql-writes.md has the statements)")

    def _place(self, token: Token | None = None) -> str:
        one = token or self.next
        start = len(self.text) if one is None else one.start
        line = self.text.count("\n", 0, start) + 1
        return f"in line {line}, column {start - (self.text.rfind(chr(10), 0, start) + 1) + 1}"

    # -- parts ----------------------------------------------------------------------------------------------------

    def name(self, what: str) -> str:
        """Read a name, and return it without its quotes."""
        if self.next is None or self.next.kind not in ("word", "quoted"):
            self.fail(what)
        token = self.take()
        if token.kind == "word":
            return token.text
        quote = token.text[0]
        return token.text[1:-1].replace(quote * 2, quote)

    def table(self) -> str:
        """Read the name of a table or an index, which may be qualified as information_schema says."""
        begin = self.next
        parts = [self.name("the name of a table")]
        while self.took_sign("."):
            parts.append(self.name("the name of a table"))
        *qualifiers, found = parts
        if qualifiers not in ([], ["tables"], ["lakebed", "tables"]):
            raise self._error(f"{'.'.join(parts)} {self._place(begin)}: all tables are in lakebed.tables; leave it out")
        if self.is_sign("@") or "@" in found or found.endswith("$raw"):
            raise self._error(
                f"{found} {self._place(begin)}: only the latest version of a table changes; leave the suffix out"
            )
        if self.is_sign("-"):
            self.fail(f'a name in double quotes, such as "{found}-…"')
        return found

    def names(self) -> tuple[str, ...]:
        """Read names in brackets."""
        self.sign("(")
        found = [self.name("the name of a column")]
        while self.took_sign(","):
            found.append(self.name("the name of a column"))
        self.sign(")")
        repeated = next((one for index, one in enumerate(found) if one in found[:index]), None)
        if repeated is not None:
            self.fail_before(f"each column once, and {repeated} is there twice")
        return tuple(found)

    def alias(self, table: str, words: tuple[str, ...]) -> str:
        """Read another name of the table, if there is one before these words."""
        if self.took_word("as"):
            return self.name("another name of the table")
        if self.next is not None and self.next.kind in ("word", "quoted") and not self.is_one_of(words):
            return self.name("another name of the table")
        return table

    def where(self) -> str | None:
        """Read a condition, if there is one."""
        return self.expression(("returning",), "a condition") if self.took_word("where") else None

    def assignment(self, tables: tuple[str, ...]) -> tuple[str, str]:
        """Read ``column = expression``; the column may be qualified with one of the names of its table."""
        if self.is_sign("("):
            self.refuse("assign one column at a time: a = …, b = …")
        name = self.name("the name of a column")
        if name in tables and self.took_sign("."):
            name = self.name("the name of a column")
        self.sign("=")
        if self.is_word("default"):
            self.refuse("columns have no defaults: give a value, or NULL")
        return name, self.expression(("where", "from", "when", "returning"), "an expression", comma=True)

    def once(self, assignments: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Return the assignments. Raises UsageError if a column has two."""
        if len(dict(assignments)) != len(assignments):
            repeated = next(one for index, (one, _) in enumerate(assignments) if one in dict(assignments[:index]))
            raise self._error(f"column {repeated} is assigned twice")
        return tuple(assignments)

    def expression(self, words: tuple[str, ...], what: str, *, comma: bool = False) -> str:
        """Read an expression up to one of these words, a closing bracket, a semicolon or, with ``comma``, a comma."""
        begin = self.next
        open_brackets: list[str] = []
        last = None
        while self.next is not None:
            if not open_brackets and (
                self.is_sign(")") or self.is_sign(";") or (comma and self.is_sign(",")) or self._is_end(words)
            ):
                break
            last = self.take()
            self._nest(open_brackets, last)
        if begin is None or last is None:
            self.fail(what)
        if open_brackets:
            self.fail(f"'{open_brackets[-1]}'" if len(open_brackets[-1]) == 1 else "END")
        return self.text[begin.start : last.end]

    def _is_end(self, words: tuple[str, ...]) -> bool:
        return self.is_one_of(words) and not (self._before is not None and self._before.text == ".")

    def _nest(self, open_brackets: list[str], token: Token) -> None:
        if token.kind == "sign" and token.text in _ENDS:
            open_brackets.append(_ENDS[token.text])
        elif token.kind == "word" and token.says("case"):
            open_brackets.append("end")
        elif open_brackets and token.says(open_brackets[-1]) and token.kind in ("sign", "word"):
            open_brackets.pop()
        elif token.kind == "sign" and token.text in _ENDS.values():
            self.fail_before(f"'{open_brackets[-1]}'" if open_brackets else "no closing bracket")

    def query(self) -> str:
        """Read a query up to the end of the text; blanks in place of what is before it keep the places of errors."""
        begin = self.next
        assert begin is not None
        depth = 0
        while self.next is not None and not self.is_sign(";"):
            if self.next.kind == "sign":
                depth += (self.next.text in _ENDS) - (self.next.text in _ENDS.values())
            elif not depth and self.is_word("on") and self.after is not None and self.after.says("conflict"):
                self.refuse(
                    "in a table that merges by latest, INSERT replaces the rows of its keys; in one that merges by "
                    "first, it keeps them; for any other rule use MERGE INTO"
                )
            elif not depth and self.is_word("on") and self.after is not None and self.after.says("duplicate"):
                self.refuse("in a table that merges by latest, INSERT replaces the rows of its keys")
            self.take()
        end = len(self.text) if self.next is None else self.next.start
        self.end()
        before = "".join("\n" if one == "\n" else " " for one in self.text[: begin.start])
        return before + self.text[begin.start : end]

    # -- CREATE TABLE ---------------------------------------------------------------------------------------------

    def column(self) -> ColumnDefinition:
        """Read a column, its type, and whether it may be null."""
        if self.is_one_of(("constraint", "unique", "check", "foreign")):
            self.refuse("the only constraints are NOT NULL and PRIMARY KEY (…)")
        name = self.name("the name of a column")
        kind = self.type()
        nullable = True
        if self.took_words("not", "null"):
            nullable = False
        else:
            self.took_word("null")
        return ColumnDefinition(name, kind, nullable)

    def type(self) -> pa.DataType:
        """Read a type, as SQL or as Lakebed names it."""
        begin = self.next
        open_brackets: list[str] = []
        last = None
        while self.next is not None:
            closes = self.is_sign(",") or self.is_sign(")") or self.is_sign(";")
            words = ("not", "null", "primary", "default", "unique", "check", "references", "generated", "constraint",
                     "collate", "comment")  # fmt: skip
            if not open_brackets and (closes or self.is_one_of(words)):
                break
            last = self.take()
            if last.kind == "sign" and last.text in "([<":
                open_brackets.append({"(": ")", "[": "]", "<": ">"}[last.text])
            elif open_brackets and last.text == open_brackets[-1]:
                open_brackets.pop()
        if begin is None or last is None:
            self.fail("a type")
        text = self.text[begin.start : last.end]
        try:
            return type_of_words(text)
        except Error as error:
            raise error.restated(f"{error.message} ({self._place(begin)})") from error

    def check_constraints(self) -> None:
        """Raise UsageError if a constraint is next that is none here."""
        if self.is_word("default"):
            self.refuse("columns have no defaults: a column that is not given is null")
        if self.is_one_of(("unique", "check", "references", "generated", "constraint", "collate", "comment")):
            self.refuse("the only constraints are NOT NULL and PRIMARY KEY")

    def options(self) -> dict[str, str | int | float | bool]:
        """Read ``(name = value, …)``."""
        self.sign("(")
        found: dict[str, str | int | float | bool] = {}
        while True:
            name = self.name("the name of a setting")
            self.sign("=")
            found[name] = self.value()
            if not self.took_sign(","):
                break
        self.sign(")")
        return found

    def value(self) -> str | int | float | bool:
        """Read a text, a number or a truth value."""
        minus = -1 if self.took_sign("-") else 1
        if self.next is None or self.next.kind not in ("text", "number", "decimal", "word"):
            self.fail("a text, a number, TRUE or FALSE")
        token = self.take()
        match token.kind:
            case "text":
                return token.text[1:-1].replace("''", "'")
            case "number":
                return minus * int(token.text)
            case "decimal":
                return minus * float(token.text)
            case _:
                return {"true": True, "false": False}.get(token.text.lower(), token.text)
