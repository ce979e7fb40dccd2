"""What an expression can make of its row is known from its text, before the engine sees it."""

import pytest

import lakebed
from lakebed.engine.value_sizes import fit_bounded
from lakebed.errors import Code, UsageError

REFUSED = [
    ("length(repeat('x', 2000000000)) > 0", "repeat makes up to 2,000,000,000 bytes, and 16,777,216 are allowed"),
    ("length(repeat(k, 17)) > 0", "repeat makes up to 17 times a column, and 16 times are allowed"),
    ('"repeat"(k, 17)', "17 times a column"),
    ("k = Repeat /* of */ ('x' , 2000000000)", "2,000,000,000 bytes"),
    ("repeat(repeat(k, 5), 5)", "25 times a column"),
    ("repeat(k, n)", "the number of repeat must be written out"),
    ("repeat(string => k, n => 2000000000)", "the number of repeat must be written out"),
    ("rpad(k, 20000)", "rpad makes up to 80,000 bytes in a row, and 16,384 are allowed"),
    ("array_repeat(k, 1000000)", "array_repeat makes up to 16,000,000 bytes in a row"),
    ("array_resize([1], 1000000000)", "array_resize makes up to"),
    ("range(0, 1000000000)", "range makes up to"),
    ("replace(k, 'a', 'bbbbbbbbbbbbbbbbbbbbb')", "replace makes up to 21 times a column"),
    ("replace(k, 'a', v)", "the replacement of replace must be written out"),
    ("regexp_replace(k, '.', 'xxxxxxxxxxxxxxxxxxxx', 'g')", "21 times a column"),
    ("concat(k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, k, k)", "concat makes up to 17 times a column"),
    (" || ".join(["k"] * 17), "it makes up to 17 times a column"),
    ("arrow_cast(k, 'FixedSizeBinary(2000000000)') = k", "arrow_cast makes up to"),
    ("CASE WHEN k = 'a' THEN repeat('x', 1000000) ELSE 'b' END", "case makes up to 1,000,000 bytes in a row"),
    ("coalesce(k, repeat('x', 1000000))", "coalesce makes up to 1,000,000 bytes in a row"),
    (f"'{'x' * 20000}'", "it makes up to 20,000 bytes in a row"),
    ("SELECT k, substr(repeat(max(v), 400000000), 1, 3) AS v FROM rows GROUP BY k", "400,000,000 times a column"),
    ("SELECT a || a || a || a || a AS a FROM (SELECT k || k || k || k AS a FROM rows)", "20 times a column"),
    ("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "it is recursive"),
    ("SELECT k, array_agg(v) OVER (ORDER BY v) FROM rows", "over a window, array_agg and string_agg gather each row"),
    ('SELECT "array_agg"(v) FILTER (WHERE v > 1) OVER w FROM rows WINDOW w AS (ORDER BY v)', "over a window"),
    ("replace(k, E'\\u0061', 'xxxxxxxxxxxxxxxxxxxx')", "replace makes up to 21 times a column"),
    ("regexp_replace(k, '.', 'xxxxxxxxxxxxxxxxxxxx', E'\\x67')", "the flags of regexp_replace must be written out"),
    ("`repeat`(k, 17)", "17 times a column"),
    ("SELECT 1 AS `'`, repeat(k, 17) AS a, 2 AS `'` FROM rows", "17 times a column"),
]

ACCEPTED = [
    "n > 3 AND s IS NULL",
    "repeat(k, 3) = 'aaa'",
    "lpad(CAST(n AS VARCHAR), 10, '0')",
    "replace(replace(k, 'a', 'bb'), 'c', 'dd')",
    "regexp_replace(url, '.*//([^/]*).*', '\\1')",
    "concat(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t)",
    "CASE WHEN a = 1 THEN 'x' WHEN a = 2 THEN 'y' WHEN a = 3 THEN lower(k) ELSE 'z' END",
    " + ".join(["a", "b"] * 20),
    " AND ".join(f"lower(k) <> '{number}'" for number in range(200)),
    f"k = '{'x' * 100_000}'",
    f"upper(repeat('x', {2**20})) = k",
    "k IN ('" + "', '".join(map(str, range(5000))) + "')",
    "date_trunc('day', at) = DATE '2026-01-01'",
    "array_has(['a', 'b'], k) OR array_to_string(l, ', ') = 'x'",
    "SELECT k, max(n) AS n, string_agg(v, ',') AS v FROM rows GROUP BY k",
    "WITH a AS (SELECT k, max(v) AS v FROM rows GROUP BY k) SELECT k, v FROM a",
    "recursive AND k = 'a'",
    "row_number() OVER (PARTITION BY k ORDER BY v) = 1",
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_an_expression_that_may_take_too_much_memory_is_refused(text, reason):
    with pytest.raises(UsageError) as caught:
        fit_bounded(text, "the predicate")
    assert caught.value.code == Code.SQL_TOO_COMPLEX
    assert caught.value.message.startswith("the predicate can take too much memory: ")
    assert reason in caught.value.message


@pytest.mark.parametrize("text", ACCEPTED)
def test_an_expression_that_keeps_to_its_rows_is_accepted(text):
    fit_bounded(text, "the predicate")


def test_a_constant_may_be_longer_than_a_value_of_each_row():
    fit_bounded(f"'{'x' * 20000}'", "the constant", once=True)


def test_the_remedy_is_a_statement_with_a_limit(tmp_path):
    lake = lakebed.create(str(tmp_path))
    table = lake.create_table("t", lakebed.Schema({"k": "string"}))
    table.write([{"k": "a"}])
    with pytest.raises(UsageError, match="A statement in SQL can, in a process with a limit"):
        table.scan(where="length(repeat(k, 1000)) = 1000")
    found = lake.sql("SELECT k FROM t WHERE length(repeat(k, 1000)) = 1000", memory_limit_bytes=2**30)
    assert found.read_all().num_rows == 1
