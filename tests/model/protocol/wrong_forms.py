"""The museum: protocols with one rule stated too simply, each of which the model must find.

A wrong form is searched with random schedules, over the swarm or over a small cast where the swarm is too diffuse.
`one_in` is the rate measured over 20,000 seeds (fewer where 400 were found before); `seeds_max` is the budget in which
the tests demand finds. Two rules are each other's net: `LOOKS_RIGHT` lists the forms that are harmless alone.
"""

from dataclasses import dataclass

from .casts import emptied_leaf, halved_job, late_job, rejoined, two_writers
from .rules import Rules
from .scenario import Scenario

CLIENT_RETRIES = two_writers(2, ("client retry",), faults_max=1)


@dataclass(frozen=True, slots=True)
class WrongForm:
    """A protocol to be found out, why it is wrong, and how it shows."""

    name: str
    rules: Rules
    because: str
    shows: frozenset[str]
    one_in: int
    cast: Scenario | None = None
    seeds_max: int = 4_000


def _form(name: str, rules: Rules, *, because: str, shows: str, one_in: int, cast: Scenario | None = None) -> WrongForm:
    return WrongForm(name, rules, because, frozenset(shows.split(", ")), one_in, cast, max(400, 20 * one_in))


LOG_FORMS = (
    _form(
        "a put overwrites",
        Rules(put="overwrite"),
        because="a store that ignores the condition lets the loser of a race erase the winner",
        shows="overwritten",
        one_in=1,
    ),
    _form(
        "exists is a lost race",
        Rules(exists="lost race", repeat="forgotten"),
        because="the entry that exists may be ours: the answer was lost, or the store's client retried by itself",
        shows="committed twice, false not committed",
        one_in=2,
        cast=CLIENT_RETRIES,
    ),
    _form(
        "unclear, so read back",
        Rules(unclear="read back"),
        because="not there proves nothing while the request is under way; it lands after we said it failed",
        shows="false not committed",
        one_in=37,
    ),
    _form(
        "unclear, so other bytes",
        Rules(unclear="other bytes"),
        because="a race lost by the second bytes says nothing of the first, which are dropped while under way",
        shows="false not committed",
        one_in=230,
    ),
    _form(
        "unclear, so the next number",
        Rules(unclear="next number"),
        because="the number given up is empty, or is filled later by what was put again",
        shows="gap, committed twice, false committed, views differ, rows lost, rows risen, rows doubled, "
        "false not committed, false refusal",
        one_in=4,
    ),
    _form(
        "own entry applied when put",
        Rules(own_entry="applied when put"),
        because="the put may lose, and then this replica alone holds a state the log never had",
        shows="views differ",
        one_in=1,
    ),
    _form(
        "request key forgotten",
        Rules(repeat="forgotten"),
        because="whoever was told unknown asks again, with new files, for what is in the log already",
        shows="committed twice, false refusal",
        one_in=3,
    ),
    _form(
        "request key compares content",
        Rules(repeat="compare content"),
        because="a restarted stream names new files for the same batch, and is refused for ever",
        shows="false refusal",
        one_in=3,
    ),
)

GROUP_FORMS = (
    _form(
        "all judged on the head",
        Rules(judged_on="head"),
        because="what is valid alone need not be valid after its neighbour in the same entry",
        shows="committed twice, rows lost, rows doubled, rows risen, false refusal, not tiled",
        one_in=5,
    ),
    _form(
        "one refusal spoils the group",
        Rules(neighbours="all or none"),
        because="a caller is refused for what another one asked",
        shows="false refusal",
        one_in=2,
    ),
    _form(
        "a refusal told at once",
        Rules(rejection="told at once"),
        because="it was judged on a neighbour's change, whose entry then loses the race and is judged anew",
        shows="false refusal",
        one_in=4,
    ),
    _form(
        "a refusal on a cached view",
        Rules(rejection="of a cached view"),
        because="the caller has seen more of the log than its committer: the job it closes is open, further on",
        shows="false refusal",
        one_in=30,
    ),
    _form(
        "a neighbour's repeat told at once",
        Rules(repeat_beside="told at once"),
        because="the first of the two is in no entry yet, and may never be",
        shows="false committed",
        one_in=12,
    ),
)

LEAF_FORMS = (
    _form(
        "a writer resolves once",
        Rules(add="resolved when planned"),
        because="the leaf was split since; the half that got no reference does not show its rows",
        shows="rows lost",
        one_in=3,
    ),
    _form(
        "left out at estimate 0",
        Rules(left_out="estimated empty"),
        because="an estimate of no rows is not proof of none",
        shows="rows lost, rows risen, false refusal",
        one_in=2,
    ),
    _form(
        "a split carries references",
        Rules(split="carries references"),
        because="files added to the leaf since it was planned are in neither half; files replaced since come back",
        shows="rows lost, rows doubled, rows risen",
        one_in=3,
    ),
    _form(
        "a reader takes the whole file",
        Rules(read="whole file"),
        because="a reference stands for the rows inside its leaf; the others show through other leaves too",
        shows="rows doubled, rows risen",
        one_in=1,
    ),
    _form(
        "any two leaves join",
        Rules(join_files="any"),
        because="rows merged away or removed in one half show again through the other half's reference",
        shows="rows doubled, rows risen",
        one_in=4,
        cast=rejoined(),
    ),
    _form(
        "leaves with open jobs join",
        Rules(join_jobs="any"),
        because="the emptied half holds no input of the job, the joined leaf does: the output's removed rows rise",
        shows="rows risen",
        one_in=34,
        cast=emptied_leaf(looks=6),
    ),
)

JOB_FORMS = (
    _form(
        "inputs may be shared",
        Rules(open_inputs="any"),
        because="two jobs with one input each replace their other inputs by outputs that both hold its rows",
        shows="rows doubled",
        one_in=7,
        cast=late_job(looks=4),
    ),
    _form(
        "inputs anywhere in the range",
        Rules(open_range="inputs somewhere in it"),
        because="one half of the range has lost one input to another job, and takes the output for the other one",
        shows="rows doubled",
        one_in=220,
        cast=halved_job(),
    ),
    _form(
        "a job commits into its original leaf",
        Rules(replace="original leaf"),
        because="after a split the other half loses the inputs and gains nothing",
        shows="rows lost",
        one_in=12,
    ),
    _form(
        "outputs go to every leaf of the range",
        Rules(replace="every leaf in range"),
        because="a range emptied since the job opened holds none of its inputs; the output brings them back",
        shows="rows risen",
        one_in=58,
    ),
    _form(
        "a closed job commits late",
        Rules(late_commit="accepted"),
        because="its inputs were free again, another job took some of them",
        shows="rows doubled",
        one_in=58,
        cast=late_job(looks=4),
    ),
)

WRONG_FORMS = LOG_FORMS + GROUP_FORMS + LEAF_FORMS + JOB_FORMS

# "Exists" read as a lost race does no harm while every transaction has a request key on record: the re-judged
# transaction is met again in the state. And where nobody asks twice, forgetting keys does none. Only both together do.
LOOKS_RIGHT = (Rules(exists="lost race"), Rules(repeat="forgotten"))
