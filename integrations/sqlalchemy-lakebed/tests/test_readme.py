"""The tutorial runs as it is printed."""

import contextlib
import io
import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_each_step_prints_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "tutorial"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for code in blocks:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "README.md", "exec"), names)
        wanted = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
        assert printed.getvalue().splitlines() == wanted
    assert len(blocks) == 5
