"""Reads the tokens of a statement that changes something: words, names, and expressions, which remain text. Pure.

Core. :class:`StatementParser`. Errors. UsageError with the token and its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lakebed.engine.sql_types import type_of_words
from lakebed.engine.tokens import Token, tokens_of
from lakebed.errors import Code, Error
from lakebed.model.wording import did_you_mean

if TYPE_CHECKING:
    from typing import NoReturn

    import pyarrow as pa

QUERIES = ("select", "values", "with", "table", "from")
"""The first words of queries."""

_NO_CLONES = (
    "tables are not cloned: read a tag, write CREATE TABLE u (PRIMARY KEY (…)) AS SELECT * FROM t, or copy the "
    "instance (`lakebed backup create`)"
)
_ONE_SCHEMA = "an instance has one schema, and its tables stand in it: leave the statement out"
_SORTED = "rows are sorted by the primary key; for another order create an index or a view"

OTHER_WORDS = {
    "branch": "there are no branches: write to a table of its own, or read a tag (`lakebed tag create`)",
    "catalog": _ONE_SCHEMA,
    "clone": _NO_CLONES,
    "cluster": _SORTED,
    "comment": "tables and columns have no comments: leave it out",
    "database": _ONE_SCHEMA,
    "deep": _NO_CLONES,
    "default": "columns have no defaults: a column that is not given is null",
    "location": "a table lies below its instance: leave it out",
    "partition": "partitions are key ranges, which split and join by themselves: leave it out",
    "partitioned": "partitions are key ranges, which split and join by themselves: leave it out",
    "role": "use `lakebed role create`",
    "schema": _ONE_SCHEMA,
    "shallow": _NO_CLONES,
    "stored": "tables have one format: leave it out",
    "tag": "use Table.tag (`lakebed tag create`)",
    "tblproperties": "settings are given as WITH (setting = value)",
    "user": "use `lakebed token create`",
    "using": "tables have one format: leave it out",
    "zorder": _SORTED,
}
"""Words of other systems that no statement has, and what is so here."""

_ENDS = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class ColumnDefinition:
    """A column of CREATE TABLE."""

    name: str
    type: pa.DataType
    nullable: bool


class StatementParser:
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
            if (instead := OTHER_WORDS.get(self.next.text.lower())) is not None:
                self.refuse(instead)
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
        return Code.SQL_INVALID(f"{text} (`lakebed docs sql-writes` has the statements)")

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
        return self.take().name

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

    def source(self) -> tuple[str, str]:
        """Read a query in brackets, or the name of a table at any version; return it as text, and its name."""
        begin = self.next
        if self.took_sign("("):
            self.expression((), "a query")
            self.sign(")")
            name = ""
        else:
            name = self.name("the name of a table, or a query in brackets")
            while self.took_sign("."):
                name = self.name("the name of a table")
            if self.took_sign("@"):
                name = f"{name}@{self.take().text}"
        assert begin is not None
        assert self._before is not None
        return self.text[begin.start : self._before.end], name

    def expressions(self) -> list[str]:
        """Read expressions in brackets."""
        self.sign("(")
        found = [self.expression((), "an expression", comma=True)]
        while self.took_sign(","):
            found.append(self.expression((), "an expression", comma=True))
        self.sign(")")
        return found

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
            raise error.restated(f"{error.message} ({self._place(begin)})") from error.__cause__

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
                return token.content
            case "number":
                return minus * int(token.text)
            case "decimal":
                return minus * float(token.text)
            case _:
                return {"true": True, "false": False}.get(token.text.lower(), token.text)
