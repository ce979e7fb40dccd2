"""A hook of MkDocs that makes the navigation, and adds pages from outside ``docs/``: README.md as the first page, other
pages, those of the packages in integrations/, and the examples.

Links between these and the pages in ``docs/`` are rewritten to their places on the site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.structure.files import File, Files

from lakebed.cli.manual import RECORDS, contents

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "RELEASE.md": "release.md",
    "GOVERNANCE.md": "governance.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages at the root of the repository, the first of which is the first of the site; the others are its last."""
EXAMPLES = "examples"
INTEGRATIONS = "integrations"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation: the pages in the order in which `lakebed docs` lists them, and those from elsewhere."""
    root = Path(config.config_file_path).parent
    sections: dict[str, list[str]] = {}
    for page, section in contents(Path(config.docs_dir)).items():
        sections.setdefault(section, []).append(f"{page}.md")
    *first, inside = sections
    front, *last = PAGES.values()
    sections[inside] += last
    others = [f"{INTEGRATIONS}/{path.parent.name}.md" for path in sorted((root / INTEGRATIONS).glob("*/README.md"))]
    nav = [front, *({name: sections[name]} for name in first), {"Other programs": others}]
    config.nav = [*nav, {inside: sections[inside]}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, with their links rewritten."""
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=links_inside((root / source).read_text("utf-8"))))
    for path in sorted((root / INTEGRATIONS).glob("*/README.md")):
        text = path.read_text("utf-8").replace("](../../docs/", "](../")
        text = re.sub(r"\]\(\.\./([a-z-]+)/README\.md\)", r"](\1.md)", text)
        files.append(File.generated(config, f"{INTEGRATIONS}/{path.parent.name}.md", content=text))
    for path in sorted((root / EXAMPLES).rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and "node_modules" not in path.parts:
            copy = path.relative_to(root).as_posix()
            files.append(File.generated(config, copy, abs_src_path=str(path)))
    return files


def links_inside(text: str) -> str:
    """The text of a page at the root of the repository, as a page of the site."""
    text = re.sub(r"(\]\(|src=\")docs/decisions/\)", r"\1decisions/README.md)", text)
    text = re.sub(r"(\]\(|src=\")docs/", r"\1", text)
    for source, page in PAGES.items():
        text = text.replace(f"]({source}", f"]({page}")
    text = re.sub(rf"\]\({INTEGRATIONS}/([a-z-]+)/README\.md\)", rf"]({INTEGRATIONS}/\1.md)", text)
    # The licence and the security policy are no pages; what they are is said by their names.
    return re.sub(r"\[([^\]]+)\]\((?:LICENSE|SECURITY\.md)\)", r"\1", text)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead the links of a page that leave ``docs/`` to the copies on the site, and leave records out of the search."""
    if RECORDS.fullmatch(page.file.src_uri.removesuffix(".md")):
        page.meta.setdefault("search", {})["exclude"] = True
    up = "../" * page.file.src_uri.count("/")
    for source, copy in PAGES.items():
        markdown = markdown.replace(f"](../{up}{source}", f"]({up}{copy}")
    # What is in deploy/ is no page either.
    markdown = re.sub(rf"\[([^\]]+)\]\(\.\./{up}deploy[^)]*\)", r"\1", markdown)
    return markdown.replace(f"](../{up}{EXAMPLES}/", f"]({up}{EXAMPLES}/")
