"""The museum of logs that are trimmed by a rule stated too simply. The model must find each of them.

`one_in` is the rate measured in random schedules, of the swarm or of a small cast where the swarm is too diffuse; the
tests demand a find within twenty times as many. Where it is None the form is too rare for that, and is searched for.
"""

from dataclasses import dataclass

from .casts import LATE_PUTS, LATE_READER, ROTTEN, TWO_TRIMMERS, Cast
from .rules import Rules


@dataclass(frozen=True, slots=True)
class WrongForm:
    """A protocol to be found out, why it is wrong, how it shows, and in how many schedules once."""

    name: str
    rules: Rules
    because: str
    shows: str
    one_in: int | None
    cast: Cast | None = None


WRONG_FORMS = (
    WrongForm(
        "delete, then raise the floor",
        Rules(delete="before the floor"),
        "whoever misses an entry, or wins its number, in between finds nothing in the floor against it",
        "stale, false committed, another history, committed twice, shut out, chain broken, forked",
        70,
    ),
    WrongForm(
        "the floor is overwritten",
        Rules(floor="overwritten"),
        "a trimmer that slept sets it back: entries that were deleted seem never to have been there",
        "stale, false committed, another history, committed twice, shut out, chain broken, forked",
        1_100,
        TWO_TRIMMERS,
    ),
    WrongForm(
        "one snapshot is enough",
        Rules(snapshots="one"),
        "it rots, and the entries that could replace it are gone",
        "shut out",
        52,
        ROTTEN,
    ),
    WrongForm(
        "a snapshot that was written is good",
        Rules(snapshot="believed"),
        "nobody has read it since; of two, one may be damaged from the start and the other one later",
        "shut out",
        5,
        ROTTEN,
    ),
    WrongForm(
        "exists is fence enough",
        Rules(created="no floor"),
        "a number that was trimmed is free: a process that slept wins it, and is told so",
        "false committed, another history, committed twice, chain broken, forked",
        37,
    ),
    WrongForm(
        "the last entries are kept",
        Rules(created="no floor, the last entries kept"),
        "however many are kept, somebody sleeps for longer",
        "false committed, another history, committed twice, chain broken, forked",
        42,
    ),
    WrongForm(
        "the floor is read before the create",
        Rules(created="floor before"),
        "the log is trimmed between the two",
        "false committed, another history, committed twice, chain broken, forked",
        42,
    ),
    WrongForm(
        "an entry found to be ours is committed",
        Rules(exists_as_ours="believed"),
        "our first put came so late that the number was free again; it is there, and in nobody's log",
        "false committed, another history, committed twice, chain broken, forked",
        700,
        LATE_PUTS,
    ),
    WrongForm(
        "published when created",
        Rules(own_entry="published when created"),
        "readers of this process see a state that the log never had until the floor is known",
        "another history",
        36,
    ),
    WrongForm(
        "below the floor is not committed",
        Rules(below_floor="not committed"),
        "a snapshot has taken the entry in before it was trimmed; only the state tells",
        "false not committed",
        500,
    ),
    WrongForm(
        "request keys stay out of snapshots",
        Rules(records="not in snapshots"),
        "whoever was told unknown asks again, and the state does not know the request any more",
        "committed twice, false not committed",
        37,
    ),
    WrongForm(
        "only the last request key is kept",
        Rules(records="the last one"),
        "without a line below which requests are refused, a late repeat takes effect again",
        "committed twice, false not committed",
        65,
    ),
    WrongForm(
        "an attempt has a base number of its own",
        Rules(base="of this attempt"),
        "the repeat looks young, and the key of the first attempt is forgotten",
        "committed twice, false not committed",
        500,
    ),
    WrongForm(
        "too old is rejected",
        Rules(too_old="rejected"),
        "the key is forgotten, not the effect: an attempt before may be in the log",
        "false not committed",
        180,
    ),
    WrongForm(
        "a missing entry is the head",
        Rules(missing="is the head"),
        "it was trimmed: a follower that slept stays where it is for ever",
        "stale",
        66,
    ),
    WrongForm(
        "floor, then nothing found",
        Rules(missing="floor before"),
        "the entry was trimmed between the two",
        "stale",
        160,
    ),
    WrongForm(
        "an entry found is the log's",
        Rules(found="believed"),
        "a process that slept has put it at a trimmed number: it continues our state, and nobody else's",
        "another history, chain broken, forked, stale, false committed, committed twice",
        57,
    ),
    WrongForm(
        "floor, then an entry found",
        Rules(found="floor before"),
        "the log is trimmed and the number won again between the two",
        "another history, chain broken, forked, stale, false committed, committed twice",
        None,
        LATE_READER,
    ),
)
