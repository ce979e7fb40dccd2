"""The subjects of commits: an order to the code base, at most 72 characters, no full stop."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BEFORE_THE_FIRST = "a5989865f8d76c7c07ddd9ce315ae1f4cfbb2526"
"""The last commit before the rule; those after it are held to it."""
SUBJECT_CHARACTERS_MAX = 72

# Words with the ending of a past tense, a participle, a third person or a plural that are verbs as they stand.
VERBS = {
    "Access", "Address", "Bring", "Compress", "Cross", "Discuss", "Dismiss", "Embed", "Express", "Feed", "Focus",
    "Guess", "Miss", "Need", "Pass", "Press", "Process", "Seed", "Shed", "Speed", "Stress", "Suppress",
}  # fmt: skip
NO_VERBS = {
    "A", "All", "An", "Any", "Each", "Every", "Fewer", "How", "It", "Its", "Many", "More", "New", "No", "One", "Some",
    "That", "The", "There", "This", "Two", "What", "When", "Where", "Which", "Why",
}  # fmt: skip


def faults_of(subject: str) -> Iterator[str]:
    first = re.match(r"[A-Za-z]*", subject)[0]
    if not first[:1].isupper():
        yield "does not begin with a capital"
    if first in NO_VERBS or (first not in VERBS and re.search(r"(ed|ing|s)$", first)):
        yield f"{first!r} is no imperative"
    if len(subject) > SUBJECT_CHARACTERS_MAX:
        yield f"has {len(subject)} characters, of {SUBJECT_CHARACTERS_MAX} at most"
    if subject.endswith("."):
        yield "ends with a full stop"


@pytest.mark.parametrize(
    ("subject", "fault"),
    [
        ("Added a test", "'Added' is no imperative"),
        ("Adding a test", "'Adding' is no imperative"),
        ("Adds a test", "'Adds' is no imperative"),
        ("The tests are faster", "'The' is no imperative"),
        ("add a test", "does not begin with a capital"),
        ("wip: tests", "does not begin with a capital"),
        ("Add a test.", "ends with a full stop"),
        ("Add " + "x" * 69, "has 73 characters, of 72 at most"),
    ],
)
def test_a_fault_is_found_in(subject: str, fault: str) -> None:
    assert list(faults_of(subject)) == [fault]


@pytest.mark.parametrize("subject", ["Add a test", "Process rows in order", "Need no lock", "Add " + "x" * 68])
def test_no_fault_is_found_in(subject: str) -> None:
    assert not list(faults_of(subject))


def test_commits_have_subjects_that_say_what_they_do() -> None:
    """Skipped where there is no history, such as in a source distribution or a shallow clone."""
    command = ["git", "log", "--no-merges", "--format=%h %s", f"{BEFORE_THE_FIRST}..HEAD"]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no history")
    subjects = [line.partition(" ") for line in ran.stdout.splitlines()]
    assert len(subjects) > 100, "the history ends too soon"
    faults = [f"{commit} {subject!r} {fault}" for commit, _, subject in subjects for fault in faults_of(subject)]
    assert not faults, "\n".join(faults)
