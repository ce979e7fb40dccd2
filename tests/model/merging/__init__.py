"""A model of tables where order matters: jobs over some files of a partition, deletions by marker, joins, fenced
removals.

It is pure Python without I/O and shares no code with Lakebed: it says what must hold, not how it is done. The log is
taken for granted (`tests/model/truncation`, `tests/model/protocol`): a transaction is validated on the newest state and
takes effect at once. What is left are plans made on old states, and jobs that commit long after they were opened.

    state     partitions, files with their span of sequence, jobs, fences; pure                   state.py
    store     the newest state, and what every reader must see                                store.py
    actors    writers, compactors, splitters, joiners, removers                               actors.py
    rules     the protocol, each rule with the forms that look right                          rules.py

A row is a put or a deletion of its key, and the latest in log order counts. A reader of a partition takes the row from
the file with the greatest span, so a merged file must stand where all of its inputs stood: no other file between them.

It shows that under the rules of docs/decisions/0012 every reader sees the latest row in log order, erased rows stay
gone, and no write is refused without a fence in its way, however old the plans; and that each rule is needed: 12
simpler forms break that.
"""
