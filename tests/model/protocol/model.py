"""The exhibits of the model of the protocol."""

from ..known_bad import Model
from .casts import (
    FAULTS,
    emptied_partition,
    halved_job,
    late_job,
    rejoined,
    restarted,
    small_table,
    swarm,
    two_writers,
    world_of,
)
from .rules import Rules
from .wrong_forms import WRONG_FORMS

QUOTA: dict[str, int] = {
    "late put landed": 40,
    "race lost": 400,
    "transactions grouped": 400,
    "AddFile committed": 1_000,
    "OpenJob committed": 400,
    "Replace committed": 400,
    "CloseJob committed": 10,
    "Split committed": 300,
    "Join committed": 40,
    "Remove committed": 100,
    "job committed into several partitions": 20,
    "reported unknown": 200,
    "reported not committed": 3,
    "refused: no such open job": 10,
    "refused: an input is gone": 20,
    "refused: a row of an input does not count": 20,
    "refused: an input is in another open job": 20,
    "refused: no such partition": 200,
    "refused: a file reaches over": 3,
    "refused: a partition has an open job": 3,
    "refused: nothing to remove": 20,
    **dict.fromkeys(FAULTS, 40),
}

TINY = {
    "one writer, splitter, compactor": small_table(1, 1, faults_max=0),
    "two writers of two batches, one answer lost": two_writers(2, faults_max=1),
    "two writers of one batch, two answers lost": two_writers(1, faults_max=2),
    "a stream started again, two answers lost": restarted(faults_max=2),
}
SMALL = {
    "two writers of two batches, two answers lost": two_writers(2, faults_max=2),
    "one writer, splitter, compactor, one answer lost": small_table(1, 1, faults_max=1),
    "two writers, splitter, compactor": small_table(2, 1, faults_max=0),
    "two compactors, closer": late_job(),
    "compactor, remover, joiner": emptied_partition(),
}
LARGE = {
    "two writers, splitter, compactor, one answer lost": small_table(2, 1, faults_max=1),
    "two compactors, splitter": halved_job(),
    "compactor, joiner, writer, one answer lost": rejoined(),
}

PROTOCOL = Model("protocol", Rules, swarm, world_of, QUOTA, WRONG_FORMS, TINY, SMALL, LARGE)
