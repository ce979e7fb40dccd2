"""The known-bad variants, protocols with one rule stated too simply. The model must find each of them.

Two rules back each other up: `LOOKS_RIGHT` lists the forms that are harmless alone.
"""

from ..known_bad import WrongForm
from .casts import emptied_partition, halved_job, late_job, rejoined, two_writers
from .rules import Rules

CLIENT_RETRIES = two_writers(2, ("client retry",), faults_max=1)


LOG_FORMS = (
    WrongForm(
        "a put overwrites",
        Rules(put="overwrite"),
        "a store that ignores the condition lets the loser of a race erase the winner",
        "overwritten",
        1,
    ),
    WrongForm(
        "exists is a lost race",
        Rules(exists="lost race", repeat="forgotten"),
        "the entry that exists may be ours: the answer was lost, or the store's client retried by itself",
        "committed twice, false not committed",
        2,
        CLIENT_RETRIES,
    ),
    WrongForm(
        "unclear, so read back",
        Rules(unclear="read back"),
        "not there proves nothing while the request is under way; it lands after we said it failed",
        "false not committed",
        54,
    ),
    WrongForm(
        "unclear, so other bytes",
        Rules(unclear="other bytes"),
        "a race lost by the second bytes says nothing of the first, which are dropped while under way",
        "false not committed",
        190,
    ),
    WrongForm(
        "unclear, so the next version",
        Rules(unclear="next version"),
        "the version given up is empty, or is filled later by what was put again",
        "gap, committed twice, false committed, views differ, rows lost, rows risen, rows doubled, "
        "false not committed, false refusal",
        4,
    ),
    WrongForm(
        "own entry applied when put",
        Rules(own_entry="applied when put"),
        "the put may lose, and then this replica alone holds a state the log never had",
        "views differ",
        1,
    ),
    WrongForm(
        "request key forgotten",
        Rules(repeat="forgotten"),
        "a client with the outcome unknown asks again, with new files, for what is in the log already",
        "committed twice, false refusal",
        3,
    ),
    WrongForm(
        "request key compares content",
        Rules(repeat="compare content"),
        "a restarted stream names new files for the same batch, and is refused for ever",
        "false refusal",
        3,
    ),
)

GROUP_FORMS = (
    WrongForm(
        "all validated on the head",
        Rules(validated_on="head"),
        "what is valid alone need not be valid after its neighbour in the same entry",
        "committed twice, rows lost, rows doubled, rows risen, false refusal, not tiled",
        5,
    ),
    WrongForm(
        "one refusal spoils the group",
        Rules(neighbours="all or none"),
        "a caller is refused for what another one asked",
        "false refusal",
        2,
    ),
    WrongForm(
        "a refusal reported at once",
        Rules(rejection="reported at once"),
        "it was validated on a neighbour's change, whose entry then loses the race and is validated anew",
        "false refusal",
        4,
    ),
    WrongForm(
        "a refusal on a cached view",
        Rules(rejection="of a cached view"),
        "the caller has seen more of the log than its committer: the job it closes is open, further on",
        "false refusal",
        35,
    ),
    WrongForm(
        "a neighbour's repeat reported at once",
        Rules(repeat_beside="reported at once"),
        "the first of the two is in no entry yet, and may never be",
        "false committed",
        12,
    ),
)

PARTITION_FORMS = (
    WrongForm(
        "a writer resolves once",
        Rules(add="resolved when planned"),
        "the partition was split since; the half that got no reference does not show its rows",
        "rows lost",
        3,
    ),
    WrongForm(
        "left out at estimate 0",
        Rules(left_out="estimated empty"),
        "an estimate of no rows is not proof of none",
        "rows lost, rows risen, false refusal",
        2,
    ),
    WrongForm(
        "a split carries references",
        Rules(split="carries references"),
        "files added to the partition since it was planned are in neither half; files replaced since come back",
        "rows lost, rows doubled, rows risen",
        3,
    ),
    WrongForm(
        "a reader takes the whole file",
        Rules(read="whole file"),
        "a reference stands for the rows inside its partition; the others show through other partitions too",
        "rows doubled, rows risen",
        1,
    ),
    WrongForm(
        "any two partitions join",
        Rules(join_files="any"),
        "rows merged away or removed in one half show again through the other half's reference",
        "rows doubled, rows risen",
        4,
        rejoined(),
    ),
    WrongForm(
        "partitions with open jobs join",
        Rules(join_jobs="any"),
        "the emptied half holds no input of the job, the joined partition does: the output's removed rows rise",
        "rows risen",
        40,
        emptied_partition(looks=6),
    ),
)

JOB_FORMS = (
    WrongForm(
        "inputs may be shared",
        Rules(open_inputs="any"),
        "two jobs with one input each replace their other inputs by outputs that both hold its rows",
        "rows doubled",
        7,
        late_job(looks=4),
    ),
    WrongForm(
        "inputs anywhere in the range",
        Rules(open_range="inputs somewhere in it"),
        "one half of the range has lost one input to another job, and takes the output for the other one",
        "rows doubled",
        220,
        halved_job(),
    ),
    WrongForm(
        "a job commits into its original partition",
        Rules(replace="original partition"),
        "after a split the other half loses the inputs and gains nothing",
        "rows lost",
        12,
    ),
    WrongForm(
        "outputs go to every partition of the range",
        Rules(replace="every partition in range"),
        "a range emptied since the job opened holds none of its inputs; the output brings them back",
        "rows risen",
        66,
    ),
    WrongForm(
        "a closed job commits late",
        Rules(late_commit="accepted"),
        "its inputs were free again, another job took some of them",
        "rows doubled",
        67,
        late_job(looks=4),
    ),
)

WRONG_FORMS = LOG_FORMS + GROUP_FORMS + PARTITION_FORMS + JOB_FORMS

# "Exists" read as a lost race is harmless while every transaction has a request key on record: the re-validated
# transaction is found in the state. If no client repeats a request, forgetting keys is harmless. Only both together are
# not.
LOOKS_RIGHT = (Rules(exists="lost race"), Rules(repeat="forgotten"))
