"""Makes the pictures of docs/images again, of the pages of a service, a notebook and a terminal: `make pictures`.

    CHROMIUM="$(scripts/ensure-chromium)" python -m scripts.take_pictures [docs/images]

Everything is run: a service over a year of flights, a notebook in a kernel with the styles of JupyterLab, and commands
in a terminal. Installs Jupyter into a temporary environment, so it needs a package index. PNG, and SVG of the terminal.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

from lakebed.server.service.service import Service
from tests import jupyter
from tests.browser import take_pictures
from tests.browser.lake import make_lake
from tests.processes.web.serving import serving

ROOT = Path(__file__).parents[1]

COLUMNS = 110

COMMANDS = (
    "lakebed table list",
    "lakebed table show flights",
    "lakebed scan flights --prefix N14228 --columns time_hour,carrier,origin,dest,dep_delay --limit 4",
    'lakebed sql "SELECT origin, count(*) AS n, round(avg(dep_delay), 1) AS delay FROM flights GROUP BY 1 ORDER BY 1"',
    "lakebed get flight N14228",
)
"""What the picture of the terminal shows; the last one is a mistake."""


def main(folder: Path) -> None:
    """Make all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        lake = make_lake(scratch / "lake")
        take_terminal(str(lake.url), folder)
        take_notebook(scratch, folder)
        with Service(lake, maintain=False), serving(lake) as url:
            take_pictures.main(url, folder)


def take_terminal(url: str, folder: Path) -> None:
    """The commands and what they print, with their colours, as terminal.svg."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in COMMANDS:
        console.print(Text.assemble(("$ ", "bold green"), command))
        console.print(Text.from_ansi(in_terminal(command, url)))
    # Pages load no fonts from other hosts.
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="lakebed"), flags=re.DOTALL)
    (folder / "terminal.svg").write_text(drawn, "utf-8")


def in_terminal(command: str, url: str) -> str:
    """What a command prints to a terminal."""
    program, *words = shlex.split(command)
    ours, theirs = pty.openpty()
    given = {**os.environ, "LAKEBED_INSTANCE": url, "COLUMNS": str(COLUMNS), "LINES": "60", "TERM": "xterm-256color"}
    given["PAGER"] = "cat"
    ran = subprocess.Popen([Path(sys.executable).with_name(program), *words], stdout=theirs, stderr=theirs, env=given)  # noqa: S603
    os.close(theirs)
    read = bytearray()
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not piece:
            break
        read += piece
    ran.wait()
    os.close(ours)
    return read.decode("utf-8").replace("\r\n", "\n").rstrip()


def take_notebook(scratch: Path, folder: Path) -> None:
    """The notebook of the examples, in the light and the dark theme of JupyterLab."""
    environment = scratch / "venv"
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)  # noqa: S603
    into = ["--quiet", "--python", environment / "bin" / "python"]
    subprocess.run([*uv, "pip", "install", *into, str(ROOT), *jupyter.PACKAGES], check=True)  # noqa: S603

    def run(program: str, *words: str) -> str:
        variables = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
        said = subprocess.run(  # noqa: S603
            [environment / "bin" / program, *words], env=variables, capture_output=True, text=True, check=True
        )
        return said.stdout

    jupyter.run_notebook(run, ROOT / "examples" / "notebook.ipynb", scratch)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])
        for theme, name in (("light", "notebook.png"), ("dark", "notebook-dark.png")):
            page = browser.new_page(viewport={"width": 1100, "height": 1500})
            page.route("http*://**", lambda route: route.abort())
            page.goto(jupyter.page_of(run, scratch, theme).as_uri())
            page.screenshot(path=folder / name)
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images")
