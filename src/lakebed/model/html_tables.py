"""Values as HTML for notebooks: a title, facts, and tables with right-aligned numbers, in light and dark. Pure.

Every text is escaped and truncated. Styles are in a style sheet of the elements that selects only the class of a view,
so several views on one page do not interfere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

CHARACTERS_MAX = 80
"""Maximum characters of a value."""

_STYLE = """<style>
.lakebed { color-scheme: light dark; font: 13px/1.45 system-ui, sans-serif; font-variant-numeric: tabular-nums; }
[data-jp-theme-light="true"] .lakebed { color-scheme: light; }
[data-jp-theme-light="false"] .lakebed { color-scheme: dark; }
.lakebed p { margin: 4px 0 6px; font-weight: 600; }
.lakebed table { border-collapse: collapse; margin: 0 0 8px; }
div.lakebed table th, div.lakebed table td { padding: 2px 12px 2px 0; border-bottom: 1px solid #8884; }
div.lakebed table th { font-weight: 500; opacity: .7; }
div.lakebed table th:not(.n), div.lakebed table td:not(.n) { text-align: left; }
div.lakebed table .n { text-align: right; }
</style>"""


def view(title: str, *parts: str) -> str:
    """Return a titled block of parts that are HTML already."""
    return f'{_STYLE}<div class="lakebed"><p>{text(title)}</p>{"".join(parts)}</div>'


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Return a table of names and values."""
    rows = (f'<tr><th scope="row">{text(name)}</th>{_cell("td", value)}</tr>' for name, value in pairs)
    return f"<table>{''.join(rows)}</table>"


def grid(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table with a heading; columns of numbers and their headings are right-aligned."""
    numeric = [bool(rows) and all(is_number(row[place]) for row in rows) for place in range(len(names))]
    head = "".join(
        f'<th scope="col"{_CLASS if right else ""}>{text(name)}</th>'
        for name, right in zip(names, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell('td', value) for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text(value: Any) -> str:
    """Return a value as escaped text; whole numbers have separators, and None is empty."""
    if value is None:
        return ""
    written = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return escape(written if len(written) <= CHARACTERS_MAX else f"{written[:CHARACTERS_MAX]}…")


class FactsView:
    """A notebook view for dataclasses that shows all their fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        named = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self))  # type: ignore[arg-type]
        return view(type(self).__name__, facts(named))


_CLASS = ' class="n"'


def is_number(value: Any) -> bool:
    """Return whether a cell goes to the right: numbers do, and missing values beside them."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(tag: str, value: Any) -> str:
    return f"<{tag}{_CLASS if is_number(value) else ''}>{text(value)}</{tag}>"
