"""The tutorial runs as it is printed."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_each_step_prints_what_the_page_says(tmp_path, monkeypatch):
    (tmp_path / "feature_store.yaml").write_text(blocks("yaml")[0])
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks("python"):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "README.md", "exec"), names)
        wanted = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
        if wanted:
            assert [line.rstrip() for line in printed.getvalue().splitlines()][-len(wanted) :] == wanted
    assert len(blocks("python")) == 6
