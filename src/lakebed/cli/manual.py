"""``lakebed docs``: lists, searches and prints the pages of the documentation, which are part of the package.

The list is a path: ``contents.txt`` has the order of the pages, in sections, for the site as well. Records are left out
of the list and the search, and printed by name: decisions and figures, which pages refer to, and which say how Lakebed
came to be rather than how it is used.

Errors: UsageError for a page that there is not. Source: docs/.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec import Struct

import lakebed
from lakebed.cli.grammar import command
from lakebed.cli.render import TextColumns
from lakebed.errors import Code
from lakebed.model.wording import count_text, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lakebed.cli.invocation import Invocation

RECORDS = re.compile(r"decisions/0.*|performance/.*|benchmarks")
"""The names of pages that are records; the site leaves them out of its search as well."""
_HYPHEN = re.compile(r"(?<=[^\W_])-(?=[^\W_])")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


class Place(Struct, frozen=True):
    """A section of a page that has the words searched for, and the first line that does."""

    page: str
    section: str
    text: str


@command
@click.argument("page", metavar="[PAGE]", required=False, help="A page, such as import or docs/import.md.")
@click.option("--search", metavar="WORDS", help="List the sections that have all of these words.")
def docs(cli: Invocation, *, page: str | None, search: str | None) -> None:
    """List the pages of the documentation, or print one.

    The pages are those of this version, and need no network. Messages name them by this command. A word of another
    system is found as well: `lakebed docs --search vacuum`.
    """
    if page is not None and search is not None:
        raise Code.ARGUMENTS_CONFLICT("give a page, or --search with words, not both")
    folder = pages_folder()
    pages = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}
    sections = contents(folder)
    listed = {name: pages[name] for name in sections if not RECORDS.fullmatch(name)}
    text = None
    if page is not None:
        name = page.removeprefix("docs/").partition("#")[0].removesuffix(".md")
        if name not in pages:
            meant = _meant(name, listed)
            raise Code.ARGUMENT_INVALID(f"there is no page {page!r}; `lakebed docs` lists the pages{meant}")
        listed = {name: pages[name]}
        text = pages[name].read_text("utf-8")
    titles = [(name, _title(path)) for name, path in listed.items()]
    found = None if search is None else places(search, listed)
    document = {
        "folder": str(folder),
        "pages": [{"page": name, "title": title, "section": sections.get(name)} for name, title in titles],
        "found": found,
        "text": text,
    }
    if found is not None:
        rows = [(place.page, place.section, place.text) for place in found]
        cli.out.document(document, [TextColumns(("page", "section", "line"), rows)] if rows else [])
        if not found:
            cli.out.note(f"no section has {search!r}; `lakebed docs` lists the pages")
    elif text is not None:
        cli.out.document(document, [text.rstrip("\n")])
    else:
        rows = [(sections[name] if first else "", name, title) for first, name, title in _with_first(titles, sections)]
        cli.out.document(document, [TextColumns(("section", "page", "title"), rows)])
        cli.out.note("begin with `lakebed docs tutorial`; --search WORDS finds a section")


def contents(folder: Path) -> dict[str, str]:
    """Return the section of each page, in the order in which they are read."""
    found: dict[str, str] = {}
    section = ""
    for line in (folder / "contents.txt").read_text("utf-8").splitlines():
        if line.startswith(" "):
            found[line.strip()] = section
        else:
            section = line
    return found


def _with_first(titles: Sequence[tuple[str, str]], sections: Mapping[str, str]) -> Iterator[tuple[bool, str, str]]:
    """Return the pages with their titles, and whether each is the first of its section."""
    before = None
    for name, title in titles:
        yield sections[name] != before, name, title
        before = sections[name]


def _meant(name: str, listed: Mapping[str, Path]) -> str:
    """Return where the word is, if it is on a page, or else a page of a similar name, as the end of a message."""
    if similar := did_you_mean(name, listed):
        return similar
    found = places(name, listed)
    return f"; {count_text(len(found), 'section')} have the word: `lakebed docs --search {name}`" if found else ""


def places(words: str, pages: Mapping[str, Path]) -> list[Place]:
    """Return the sections of pages that have all words, in any case, with or without hyphens.

    First come those of the page on words of other systems, then those with one in their heading.
    """
    wanted = _joined_up(words).split()
    found = [
        Place(name, section, _line_with(wanted[0], section, body))
        for name, path in pages.items()
        for section, body in _sections(path.read_text("utf-8"))
        if wanted and all(word in _joined_up(f"{section}\n{body}") for word in wanted)
    ]
    return sorted(
        found, key=lambda one: (one.page != "words", all(word not in _joined_up(one.section) for word in wanted))
    )


def _joined_up(text: str) -> str:
    """Return the text in small letters, and without hyphens in words: Z-order is also written zorder."""
    return _HYPHEN.sub("", text.lower())


def _line_with(word: str, section: str, body: str) -> str:
    """Return the first line that has the word, else the heading; of the row of a table, its cells."""
    line = next((one for one in body.splitlines() if word in _joined_up(one)), section)
    return " · ".join(cell.strip() for cell in line.strip("| ").split(" | ")).replace("\\|", "|")


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Return each heading, without its marks, and the text up to the next one."""
    # A comment of a program is no heading.
    fences = [range(*at.span()) for at in _FENCE.finditer(text)]
    headings = re.finditer(r"^#+ (.*)$", text, re.MULTILINE)
    starts = [at for at in headings if not any(at.start() in fence for fence in fences)]
    for at, following in zip(starts, [*starts[1:], None], strict=True):
        yield at[1], text[at.end() : len(text) if following is None else following.start()]


def pages_folder() -> Path:
    """Return where the pages are: in the package, or beside the sources that it is run from."""
    inside = Path(lakebed.__file__).with_name("docs")
    return inside if inside.is_dir() else Path(lakebed.__file__).parents[2] / "docs"


def _title(page: Path) -> str:
    lines = page.read_text("utf-8").splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")
