"""A model of the protocol: how transactions are committed, and their effects on partitions, references and jobs.

It is pure Python without I/O and shares no code with Lakebed: it specifies what must hold, not how it is done.

    store     the log: numbered entries, put if absent; faults; desks       store.py
    actors    one committer per process, clients that propose transactions  committer.py, clients.py
    state     partitions, references, open jobs, request keys on record     state.py, transactions.py, rows.py
    oracle    the intent of each transaction, the rows readers must see     checks.py
    rules     the protocol, each rule with the forms that look right        rules.py, wrong_forms.py
    casts     the actors: drawn from a seed, or tiny                        casts.py

It shows that a transaction takes effect once or never and its caller gets the true outcome (docs/decisions/0004), and
that adds, jobs, splits, joins and removals planned on old views show every reader each row once (0003, 0005).

A put may lose its answer, be lost, arrive after its sender gave up, be repeated by the store's client, or end in a
crash. The oracle checks every step that changes the log or a view of it.

The search covers all schedules of a tiny cast and visits each state once. States visited, without a broken promise:

    compactor, remover, joiner                                 2,194 states
    one writer, splitter, compactor                            4,701
    two writers of two batches, two answers lost or late       6,964
    one writer, splitter, compactor, one answer lost or late  47,013
    two compactors, closer                                    75,976
    two writers, splitter, compactor                         432,651

Log truncation, deletion of files, and merging in order have models of their own.
"""
