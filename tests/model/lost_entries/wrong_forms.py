"""The known-bad variants of a log that loses entries. The model must find each of them."""

from ..known_bad import WrongForm
from .actors import APPENDED, DELETED, FAILED_OVER
from .rules import Rules

WRONG_FORMS = (
    WrongForm(
        "an entry is put if it is absent",
        Rules(append="if absent"),
        "the writer lives on entries that the fail-over forgot, and puts the next one above a gap",
        "forked",
        None,
        FAILED_OVER,
    ),
    WrongForm(
        "an entry is put behind any entry",
        Rules(append="behind any entry"),
        "another writer has put another entry where the forgotten one was",
        "forked",
        None,
        FAILED_OVER,
    ),
    WrongForm(
        "a gap is filled",
        Rules(gaps="filled"),
        "the entry beyond continues the one that was lost, not this one",
        "forked",
        None,
        DELETED,
    ),
    WrongForm(
        "the first missing entry is the end",
        Rules(end="the first missing entry"),
        "entries beyond the gap were acknowledged, and no reader sees them",
        "cut short",
        None,
        DELETED,
    ),
    WrongForm(
        "the witness is believed",
        Rules(witness="believed"),
        "the missing entry and the one beyond it were appended between the read and the look",
        "false alarm",
        None,
        APPENDED,
    ),
)
