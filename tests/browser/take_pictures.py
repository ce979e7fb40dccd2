"""Takes the pictures of the pages that are in docs/images, from a service that runs.

    CHROMIUM="$(scripts/ensure-chromium)" python -m tests.browser.take_pictures http://127.0.0.1:8017 docs/images

The instance needs a table ``flights`` with the row key ``tailnum``, as `make demo` makes it. PNG, a file for each page.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import sync_playwright

SQL = """SELECT origin, count(*) AS flights, round(avg(dep_delay), 1) AS delay
FROM flights GROUP BY origin ORDER BY 2 DESC"""

KEY = "/query?kind=key&table=flights&low.tailnum=N14228&explain=true&run=true&rows=10"

PICTURES = [
    # name, page, colours, width, height
    ("overview-light", "/", "light", 1280, 800),
    ("table-light", "/tables/flights", "light", 1280, 860),
    ("jobs-light", "/jobs", "light", 1280, 800),
    ("query-light", KEY, "light", 1280, 900),
    ("query-dark", f"/query?kind=sql&sql={quote(SQL)}&run=true", "dark", 1280, 560),
    ("log-light", "/log", "light", 1280, 600),
    ("overview-phone", "/", "light", 390, 760),
    ("table-phone", "/tables/flights", "light", 390, 760),
]


def main(url: str, folder: Path) -> None:
    """Take all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["CHROMIUM"], args=["--no-sandbox"])
        for name, path, scheme, width, height in PICTURES:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, base_url=url)
            page.goto(path, timeout=300_000)  # ms: a loaded machine takes long
            picture = folder / f"{name}.png"
            page.screenshot(path=picture)
            print(f"{picture}: {picture.stat().st_size // 1000} kB")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
