"""A model of tables that merge rows: jobs over some files of a partition or of several, deletes and partial rows,
joins, restores, fenced removals, filters and cuts of age, changes of the merge mode.

It is pure Python without I/O and shares no code with Lakebed: it specifies what must hold, not how it is done. The log
is assumed correct (`tests/model/truncation`, `tests/model/protocol`): a transaction is validated on the latest state
and takes effect at once. The model covers plans made on old states, and jobs that commit long after they were opened.

    rows      rows of three kinds, and the merge of rows with one key                            rows.py
    state     partitions, files in order of arrival, jobs, fences, filter, mode; pure            state.py
    store     the latest state, and the rows that every reader must see                          store.py
    actors    writers, compactors, splitters, joiners, removers, restorers …                     actors.py
    rules     the protocol, each rule with the forms that look right                             rules.py

A partition's files are a list in order of arrival, and a reader merges the rows of a key in the order of that list. So
a job's output must take the place of all of its inputs, in every partition.

It shows that under the rules of docs/decisions/0012 every reader sees the rows of the log, erased rows stay erased, and
no write is refused without a reason, however old the plans; and that each rule is needed: 31 simpler forms break that.
"""
