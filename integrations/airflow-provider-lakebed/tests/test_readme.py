"""The tutorial runs as it is printed."""

import contextlib
import io
import os
import re
from pathlib import Path

from dags import loaded

PAGE = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_each_step_prints_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIRFLOW_CONN_LAKEBED_DEFAULT", "")
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for code in blocks:
        if "with DAG(" in code:
            file = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]) / "monday.py"
            file.write_text(code)
            names["dag"] = loaded(file)
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "README.md", "exec"), names)
        wanted = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
        if wanted:
            assert printed.getvalue().splitlines()[-len(wanted) :] == wanted
    assert len(blocks) == 4
