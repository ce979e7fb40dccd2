"""The known-bad variants of ordered merges, joins and removals by a rule stated too simply. The model must find each of
them."""

from ..known_bad import WrongForm
from .casts import EMPTIED, ERASED, HALVES, REMOVED, SPANS, SUBSETS
from .rules import Rules

WRONG_FORMS = (
    WrongForm(
        "a sequence from the proposal",
        Rules(sequence="of the proposal"),
        "what was committed in between counts as later, and hides it",
        "wrong answer",
        46,
    ),
    WrongForm(
        "neighbours by lowest sequence",
        Rules(inputs="neighbours by lowest"),
        "after a join a file merged in one half spans files of the other: merged with one, it steps over the next",
        "wrong answer",
        250,
        SPANS,
    ),
    WrongForm(
        "any files merge",
        Rules(inputs="any"),
        "the output stands above or below the file between its inputs",
        "wrong answer",
        3,
        SUBSETS,
    ),
    WrongForm(
        "a merge drops deletions",
        Rules(markers="dropped"),
        "a row below the inputs rises again",
        "wrong answer",
        5,
        SUBSETS,
    ),
    WrongForm(
        "any two partitions join",
        Rules(join_files="any"),
        "rows removed or merged away in one half show again through the other half's file",
        "wrong answer",
        2,
        EMPTIED,
    ),
    WrongForm(
        "partitions with open jobs join",
        Rules(join_jobs="any"),
        "one half was emptied; as part of the joined partition it gains the output",
        "wrong answer",
        142,
        HALVES,
    ),
    WrongForm(
        "a job commits into its original partition",
        Rules(replace="original partition"),
        "after a split, or a removal, the other half loses its rows",
        "wrong answer",
        16,
        HALVES,
    ),
    WrongForm(
        "outputs go to every partition of the range",
        Rules(replace="every partition in range"),
        "a range emptied since the job opened gets its rows back",
        "wrong answer",
        16,
        HALVES,
    ),
    WrongForm(
        "a fence for readers only",
        Rules(fence_adds="accepted"),
        "a write proposed before the removal brings back what was to go for good",
        "under the fence",
        4,
        ERASED,
    ),
    WrongForm(
        "an attempt has a base version of its own",
        Rules(fence_base="of this attempt"),
        "an old write is as young as its last attempt",
        "under the fence",
        4,
        ERASED,
    ),
    WrongForm(
        "jobs pass the fence",
        Rules(fence_jobs="accepted"),
        "no reader sees the erased rows, but the output holds their bytes",
        "erased rows kept",
        28,
        ERASED,
    ),
    WrongForm(
        "every removal is a fence",
        Rules(unfenced="refuses older"),
        "a slow writer is refused for a removal that was not for good",
        "false refusal",
        3,
        REMOVED,
    ),
)
