"""SQLAlchemy's own tests of dialects, in a process of their own, with the counts and reasons that README.md has."""

import collections
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import sqlalchemy

PACKAGE = Path(__file__).parents[1]


def test_the_counts_are_those_of_the_page(tmp_path):
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/suite", f"--junitxml={report}"]
    run = subprocess.run(command, check=False, cwd=PACKAGE, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-20_000:]
    page = (PACKAGE / "README.md").read_text("utf-8")
    passed, failed, reasons = counted(report)
    series = re.escape(sqlalchemy.__version__.rpartition(".")[0])
    counts = r"\.\d+ \| ([\d,]+) \| (\d+) \| ([\d,]+) \|"
    (row,) = re.findall(rf"\| `sqlalchemy.testing.suite` of SQLAlchemy {series}{counts}", page)
    assert [int(count.replace(",", "")) for count in row] == [passed, failed, sum(reasons.values())]
    # A test with two reasons is skipped for either, so the numbers of the reasons differ from run to run.
    assert reasons.keys() <= set(re.findall(r"^\| \d+ \| (.*) \|$", page, re.MULTILINE))


def counted(report):
    """The tests that passed and failed, and how many there were not for each reason."""
    passed = failed = 0
    reasons = collections.Counter()
    for case in ET.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            reasons[re.sub(r"^'.*' : ", "", skipped.get("message"), flags=re.DOTALL)] += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        else:
            passed += 1
    return passed, failed, reasons
