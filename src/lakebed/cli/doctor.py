"""``lakebed doctor`` and ``lakebed docs``: diagnosis of this machine and an instance, and the documentation.

The checks are in :mod:`lakebed.cli.diagnosis`. All of them are printed, then the first error is raised.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

import lakebed
from lakebed.cli.diagnosis import Check, instance_checks, machine_checks
from lakebed.cli.grammar import command
from lakebed.cli.invocation import Invocation
from lakebed.cli.render import TextColumns
from lakebed.errors import Code
from lakebed.model.wording import count_text, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@command
def doctor(cli: Invocation) -> None:
    """Check this machine, and the instance if one is given.

    For the machine: Python, packages and extras, Java, limits. For the instance: permissions, the conditional writes
    that commits rely on, the clock, the log. Each is actually tried, with small objects that are deleted again. A
    warning does not change the exit code; if a check fails, the exit code is that of its error.
    """
    checks = list(machine_checks())
    url = cli.url_if_given()
    if url:
        checks += instance_checks(url, cli.options_in_force(), cli.instance)
    failed = [check for check in checks if check.error is not None]
    document = {
        "sound": not failed,
        "checks": [
            {
                "check": one.name,
                "status": one.status,
                "found": one.found,
                "remedy": one.remedy,
                "code": one.error.code if one.error else None,
            }
            for one in checks
        ],
    }
    cli.out.document(document, _check_lines(checks))
    if not url:
        cli.out.note("no instance was checked: give --instance URL")
    if failed and failed[0].error is not None:
        names = ", ".join(check.name for check in failed)
        raise failed[0].error.code(f"{count_text(len(failed), 'check')} failed: {names}")


def _check_lines(checks: Sequence[Check]) -> Iterator[str]:
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.status:7}  {check.name:{width}}  {check.found}"
        if check.remedy is not None:
            yield f"{'':7}  {'':{width}}  -> {check.remedy}"


# -- lakebed docs ---------------------------------------------------------------------------------------------------


@command
@click.argument("page", metavar="[PAGE]", required=False, help="A page, such as import or docs/import.md.")
def docs(cli: Invocation, *, page: str | None) -> None:
    """List the pages of the documentation, or print one.

    The pages are those of this version, and need no network. Messages name them as docs/import.md.
    """
    folder = pages_folder()
    pages = {path.relative_to(folder).with_suffix("").as_posix(): path for path in sorted(folder.rglob("*.md"))}
    text = None
    if page is not None:
        name = page.removeprefix("docs/").partition("#")[0].removesuffix(".md")
        if name not in pages:
            meant = did_you_mean(name, pages)
            raise Code.ARGUMENT_INVALID(f"there is no page {page!r}; `lakebed docs` lists the pages{meant}")
        pages = {name: pages[name]}
        text = pages[name].read_text("utf-8")
    listed = [(name, _title(path)) for name, path in pages.items()]
    document = {
        "folder": str(folder),
        "pages": [{"page": name, "title": title} for name, title in listed],
        "text": text,
    }
    cli.out.document(document, [TextColumns(("page", "title"), listed) if text is None else text.rstrip("\n")])


def pages_folder() -> Path:
    """Return where the pages are: in the package, or beside the sources that it is run from."""
    inside = Path(lakebed.__file__).with_name("docs")
    return inside if inside.is_dir() else Path(lakebed.__file__).parents[2] / "docs"


def _title(page: Path) -> str:
    lines = page.read_text("utf-8").splitlines()
    return next((line.removeprefix("# ") for line in lines if line.startswith("# ")), "")
