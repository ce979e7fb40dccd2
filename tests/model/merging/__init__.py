"""A model of tables that merge rows: jobs over some files of a partition or of several, deletes and partial rows,
joins, restores, fenced removals, filters and cuts of age, changes of the merge mode.

It is pure Python without I/O and shares no code with Lakebed: it says what must hold, not how it is done. The log is
taken for granted (`tests/model/truncation`, `tests/model/protocol`): a transaction is validated on the newest state and
takes effect at once. What is left are plans made on old states, and jobs that commit long after they were opened.

    rows      rows of three kinds, and what rows with one key become                             rows.py
    state     partitions, files in order of arrival, jobs, fences, filter, mode; pure            state.py
    store     the newest state, and what every reader must see                                   store.py
    actors    writers, compactors, splitters, joiners, removers, restorers …                     actors.py
    rules     the protocol, each rule with the forms that look right                             rules.py

A partition's files are a list in order of arrival, and a reader merges the rows of a key in the order of that list. So
a job's output must stand where all of its inputs stood, in every partition.

It shows that under the rules of docs/decisions/0012 every reader sees what the log says, erased rows stay gone, and no
write is refused without a reason, however old the plans; and that each rule is needed: 31 simpler forms break that.
"""
