"""Random predicates: as SQL, and as three-valued logic over a row."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from tests.adversarial.random_predicates.kinds import BY_NAME, DAY_NS, KINDS, NS, NUMBERS, Kind, order
from tests.adversarial.random_predicates.terms import Row, Term, UndefinedError, literal, term

Truth = bool | None
OPERATORS: dict[str, Callable[[int], bool]] = {
    "=": lambda found: found == 0,
    "<>": lambda found: found != 0,
    "<": lambda found: found < 0,
    "<=": lambda found: found <= 0,
    ">": lambda found: found > 0,
    ">=": lambda found: found >= 0,
}


@dataclass(frozen=True)
class Predicate:
    """A predicate as SQL, and its truth for a row."""

    sql: str
    of: Callable[[Row], Truth]

    def truths(self, rows: list[Row]) -> list[Truth] | None:
        """Return its truth for each row; None if it is undefined for one."""
        try:
            return [self.of(row) for row in rows]
        except UndefinedError:
            return None


def predicate(chance: Random, kinds: list[Kind], depth: int = 2) -> Predicate:
    """Return a random predicate over columns of these kinds; those named twice are as likely again."""
    if not depth or chance.random() < 0.45:
        return _leaf(chance, kinds)
    one = predicate(chance, kinds, depth - 1)
    match chance.choice(("and", "and", "or", "or", "not", "is", "case")):
        case "not":
            return Predicate(f"NOT ({one.sql})", lambda row: _not(one.of(row)))
        case "is":
            words = {"TRUE": True, "FALSE": False, "UNKNOWN": None}
            word, no = chance.choice(tuple(words)), chance.random() < 0.5
            wanted = words[word]
            sql = f"({one.sql}) IS {'NOT ' if no else ''}{word}"
            return Predicate(sql, lambda row: (one.of(row) is wanted) != no)
        case "case":
            other = predicate(chance, kinds, depth - 1)
            sql = f"CASE WHEN {one.sql} THEN {other.sql} ELSE FALSE END"
            # Both are evaluated here: whether the engine evaluates the second for all rows is its choice.
            return Predicate(sql, lambda row: _chosen(one.of(row), other.of(row)))
        case "and":
            other = predicate(chance, kinds, depth - 1)
            return Predicate(f"({one.sql}) AND ({other.sql})", lambda row: _and(one.of(row), other.of(row)))
    other = predicate(chance, kinds, depth - 1)
    return Predicate(f"({one.sql}) OR ({other.sql})", lambda row: _or(one.of(row), other.of(row)))


def _chosen(one: Truth, other: Truth) -> Truth:
    return other if one is True else False


def _and(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _or(one: Truth, other: Truth) -> Truth:
    return _not(_and(_not(one), _not(other)))


def _not(one: Truth) -> Truth:
    return None if one is None else not one


# -- leaves -----------------------------------------------------------------------------------------------------


def _leaf(chance: Random, kinds: list[Kind]) -> Predicate:
    operand = term(chance, kinds)
    if operand.family == "bool" and chance.random() < 0.3:
        return Predicate(operand.sql, operand.of)
    form = chance.choice(("compare",) * 5 + ("distinct", "in", "in", "between", "null", "null", "like", "columns"))
    if form == "null":
        no = chance.random() < 0.5
        return Predicate(f"{operand.sql} IS {'NOT ' if no else ''}NULL", lambda row: (operand.of(row) is None) != no)
    if form == "like" and operand.family == "text":
        return _like(chance, operand)
    if form == "in":
        one, another = _in(chance, operand), _in(chance, operand)
        # Two lists of one operand, which the engine may join.
        both = Predicate(f"{one.sql} AND {another.sql}", lambda row: _and(one.of(row), another.of(row)))
        either = Predicate(f"{one.sql} OR {another.sql}", lambda row: _or(one.of(row), another.of(row)))
        return chance.choice((one, one, both, either))
    if form == "between":
        kind = _kind_beside(chance, operand)
        low, high = (_literal_beside(chance, operand, kind) for _ in range(2))
        no = chance.random() < 0.4

        def between(row: Row) -> Truth:
            inside = _and(_compared(operand, ">=", low)(row), _compared(operand, "<=", high)(row))
            return _not(inside) if no else inside

        return Predicate(f"{operand.sql} {'NOT ' if no else ''}BETWEEN {low.sql} AND {high.sql}", between)
    other = _beside(chance, operand)
    if form == "columns":
        alike = [kind for kind in kinds if kind.name == (operand.column and operand.column.name)]
        other = term(chance, alike) if alike else other
        other = (
            other if other.family == operand.family and other.unit_ns == operand.unit_ns else _beside(chance, operand)
        )
    if form == "distinct":
        no = chance.random() < 0.5
        return Predicate(
            f"{operand.sql} IS {'NOT ' if no else ''}DISTINCT FROM {other.sql}", _distinct(operand, other, no=no)
        )
    sign = chance.choice(tuple(OPERATORS))
    if chance.random() < 0.2:
        return Predicate(f"{other.sql} {sign} {operand.sql}", _compared(other, sign, operand))
    return Predicate(f"{operand.sql} {sign} {other.sql}", _compared(operand, sign, other))


def _compared(one: Term, sign: str, other: Term) -> Callable[[Row], Truth]:
    def of(row: Row) -> Truth:
        a, b = one.of(row), other.of(row)
        return None if a is None or b is None else OPERATORS[sign](order(a, one.family, b, other.family))

    return of


def _distinct(one: Term, other: Term, *, no: bool) -> Callable[[Row], Truth]:
    def of(row: Row) -> Truth:
        a, b = one.of(row), other.of(row)
        if a is None or b is None:
            return ((a is None) != (b is None)) != no
        return (order(a, one.family, b, other.family) != 0) != no

    return of


def _in(chance: Random, operand: Term) -> Predicate:
    kind = _kind_beside(chance, operand)
    listed = [_literal_beside(chance, operand, kind) for _ in range(chance.choice((1, 2, 3, 5, 9)))]
    with_null = chance.random() < 0.2
    no = chance.random() < 0.4
    texts = [one.sql for one in listed] + ["NULL"] * with_null
    chance.shuffle(texts)

    def of(row: Row) -> Truth:
        found: Truth = None if with_null else False
        for one in listed:
            found = _or(found, _compared(operand, "=", one)(row))
        return _not(found) if no else found

    def known_first(row: Row) -> Truth:
        return None if operand.of(row) is None else of(row)

    return Predicate(f"{operand.sql} {'NOT ' if no else ''}IN ({', '.join(texts)})", known_first)


def _like(chance: Random, operand: Term) -> Predicate:
    pattern = chance.choice(("a%", "%a", "a_%", "_", "%", "", "a\\%%", "a\\_b", "1%", "0_", "%1%", "é%", "A%"))
    no = chance.random() < 0.3
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    meant = "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)
    if chance.random() < 0.2:
        stem = chance.choice(("", "a", "1", "\x01", "é", "a%"))
        return Predicate(
            f"starts_with({operand.sql}, '{stem}')",
            lambda row: None if operand.of(row) is None else operand.of(row).startswith(stem),
        )

    def of(row: Row) -> Truth:
        value = operand.of(row)
        return None if value is None else (re.fullmatch(meant, value, re.DOTALL) is not None) != no

    return Predicate(f"{operand.sql} {'NOT ' if no else ''}LIKE '{pattern}'", of)


# -- what stands beside a term ----------------------------------------------------------------------------------

_BESIDE = {
    "int": ("i8", "i32", "i64", "i64", "u64", "f64"),
    "decimal": ("dec", "dec", "i64"),
    "float": ("f64", "f64", "f32", "i64"),
    "text": ("s",),
    "bool": ("b",),
    "date": ("d", "d", "tus"),
    "instant": ("tus", "tus", "d"),
    "time": ("t",),
    "bytes": ("y",),
}


def _kind_beside(chance: Random, operand: Term) -> Kind:
    return BY_NAME[chance.choice(_BESIDE[operand.family])]


def _beside(chance: Random, operand: Term) -> Term:
    return _literal_beside(chance, operand, _kind_beside(chance, operand))


def _literal_beside(chance: Random, operand: Term, kind: Kind) -> Term:
    """Return a literal that the engine compares with the term as the evaluator does.

    Left out are what docs/engine-faults.md says is not guarded: zero beside a float that is no column, and a time that
    is finer than the unit of an expression. The engine refuses a large double beside an unsigned number.
    """
    value = chance.choice([one for one in kind.contents if _is_compared(operand, kind, one)])
    if operand.family == "decimal" and kind.family == "decimal":
        # A number with a point beside a column is a decimal, and beside other expressions a double.
        if operand.column is None:
            return Term(f"CAST('{value}' AS DECIMAL(10,2))", "decimal", lambda _: value)
        finer = value + chance.choice((Decimal(0), Decimal("0.005")))
        return Term(str(finer), "decimal", lambda _: finer)
    if operand.family == "decimal":
        value = max(-(10**8), min(10**8, value))
    if kind.family == "instant" and operand.column is not None and chance.random() < 0.2:
        finer_at = value + chance.choice((1, 500, 500_000))
        return literal(kind, finer_at)
    if kind.family == "int" and operand.family in NUMBERS and chance.random() < 0.2:
        ends = (0, 1, -1, 127, 128, 2**53, 2**53 + 1)
        value = chance.choice([one for one in ends if _is_compared(operand, kind, one)])
    return literal(kind, value)


def _is_compared(operand: Term, kind: Kind, value: Any) -> bool:
    if operand.column is None and "float" in (kind.family, operand.family) and value == 0:
        return False
    if kind.family == "float" and operand.family == "int":
        return bool(abs(value) < 10**6)
    return kind.family != "instant" or operand.column is not None or value % max(operand.unit_ns, 1) == 0


def columns_of(chance: Random, key: Kind) -> list[Kind]:
    """Return the columns for one predicate: often the key."""
    return [key, key, *chance.sample(KINDS, 2)]


__all__ = ["DAY_NS", "NS", "Predicate", "columns_of", "predicate"]
