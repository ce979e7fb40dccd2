"""What an error says of a statement that the engine does not plan: the place, the words before it, what is meant."""

from __future__ import annotations

import pytest

import lakebed
from lakebed import Schema, UsageError
from lakebed.clock import new_id

MISTAKES = {
    "SELEC * FROM t": "syntax error at 'SELEC' in line 1, column 1: expected an SQL statement; did you mean 'SELECT'?",
    "hello": "a statement begins with SELECT, WITH, EXPLAIN",
    "SELECT id,\n  s\nFORM t": "at 't' in line 3, column 6, after ', s FORM': expected end of statement; did you mean "
    "'FROM' in place of 'FORM'?",
    "SELECT * FROM t WEHRE id = 1": "did you mean 'WHERE' in place of 'WEHRE'?",
    "SELECT * FROM t WHERE id = 1 LIMT 5": "did you mean 'LIMIT' in place of 'LIMT'?",
    "SELECT * FROM t WHERE": "the text ends too early, after 'FROM t WHERE': expected an expression",
    "SELECT (1": "the text ends too early, after 'SELECT (1': expected )",
    "SELECT (id FROM t": "at 'FROM' in line 1, column 12, after 'SELECT (id': expected ) (",
    "SELECT * FROM t WHERE s = 'a": """the text in quotes that begins in line 1, column 27 is not closed: "'a";""",
    "SELECT *\nFROM t WHERE s = 'O'Hare'": "the text in quotes that begins in line 2, column 25 is not closed",
    'SELECT "s FROM t': "the name in double quotes that begins in line 1, column 8 is not closed",
    'SELECT * FROM t WHERE s = "a"': "No field named a. Valid fields are t.id, t.s. Double quotes are for names: "
    "a text is written 'a'",
    "SELECT * FROM t WHERE s = EWR": "Valid fields are t.id, t.s. A text is written in quotes: 'EWR'",
    "SELECT * FROM t WHERE s = \u201ca\u201d": "write straight quotes",
    "SELECT * FROM t GROUP id": "did you mean 'GROUP BY'?",
    "SELECT * FROM t ORDER id": "did you mean 'ORDER BY'?",
    "SELECT * FROM t LIMIT 1 WHERE id = 1": "the clauses stand in the order SELECT, FROM, WHERE",
    "SELECT * FROM my-table": "a name that is not a plain word is written in double quotes",
    "SELECT TOP 5 * FROM t": "TOP is not supported: write LIMIT",
    "SELECT * FROM t FETCH FIRST 1 ROWS ONLY": "FETCH is not supported: write LIMIT",
    "SELECT * FROM t WHERE id = 1 && id = 2": "the operator && is not supported: write AND",
    "SELECT id, count(*) FROM t": "column t.id must be in GROUP BY, or inside an aggregate such as max(t.id)",
    "SELECT sum(s) FROM t": "function sum does not take String",
    "SELECT id FROM t WHERE id = 'x'": "cannot plan the query: Cannot cast string 'x' to value of Int64 type",
    "SELECT idd FROM t": "cannot plan the query: No field named idd. Did you mean 't.id'?",
    ";": "the text is empty",
    "/* x": "Unexpected EOF while in a multi-line comment",
}
PREDICATES = {
    "": "the text is empty",
    "id =": "the text ends too early, after 'id =': expected an expression",
    "id = 1; drop": "syntax error at ';' in line 1, column 7, after 'id = 1'",
    "s = 'a": "the text in quotes that begins in line 1, column 5 is not closed",
    's = "a"': "Double quotes are for names: a text is written 'a'",
    "s = EWR": "No field named \"EWR\". A text is written in quotes: 'EWR'",
    "id IN 1": "syntax error at '1' in line 1, column 7, after 'id IN': expected ()",
}


@pytest.fixture(scope="module")
def lake() -> lakebed.Instance:
    lake = lakebed.create(f"memory://{new_id()}")
    lake.create_table("t", Schema({"id": "int64"}, values={"s": "string"})).write([{"id": 1, "s": "a"}])
    return lake


@pytest.mark.parametrize("statement", MISTAKES)
def test_a_statement_with_a_mistake(lake: lakebed.Instance, statement: str) -> None:
    with pytest.raises(UsageError) as caught:
        lake.sql(statement).read_all()
    assert MISTAKES[statement] in caught.value.message
    assert caught.value.code == "sql_invalid"
    assert caught.value.message.endswith("(`lakebed docs queries` has the SQL)")


@pytest.mark.parametrize("where", PREDICATES)
def test_a_predicate_with_a_mistake(lake: lakebed.Instance, where: str) -> None:
    with pytest.raises(UsageError) as caught:
        lake.table("t").scan(where=where).read_all()
    assert PREDICATES[where] in caught.value.message
    assert caught.value.code == "predicate_invalid"


def test_parentheses_and_quotes_in_values_of_parameters_do_not_break_a_message(lake: lakebed.Instance) -> None:
    with pytest.raises(UsageError, match="expected end of statement"):
        lake.sql("SELECT * FROM t WHERE s = ? GROUP id", parameters=["O'Hare) \\ \n\"x"])
