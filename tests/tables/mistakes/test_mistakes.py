"""The page of mistakes is what Lakebed says, and no message is a traceback."""

from __future__ import annotations

from pathlib import Path

from tests.tables.mistakes import page

PAGE = Path(__file__).with_name("mistakes.md")


def test_every_message_is_the_one_on_the_page() -> None:
    found = page.page()
    assert found == PAGE.read_text("utf-8"), (
        "look at each new message; then: python -m tests.tables.mistakes.page > tests/tables/mistakes/mistakes.md"
    )
    assert "Traceback" not in found
