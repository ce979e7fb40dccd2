"""A model of the protocol: how transactions get into the log, and what they may do to partitions, references and jobs.

It is pure Python without I/O and shares no code with Lakebed: it says what must hold, not how it is done.

    store     the log: numbered entries, put if absent; faults; desks       store.py
    actors    a committer a process, and clients that proposal transactions    committer.py, clients.py
    state     partitions, references, open jobs, request keys on record         state.py, transactions.py, rows.py
    oracle    what each transaction meant, so what every reader must see    checks.py
    rules     the protocol, each rule with the forms that look right        rules.py, wrong_forms.py
    casts     who takes part: drawn from a seed, or tiny                    casts.py

It shows that a transaction takes effect once or never and its caller is told no lie (docs/decisions/0004), and that
adds, jobs, splits, joins and removals planned on old views show every reader each row once (0003, 0005).

A put may lose its answer, be lost, arrive after its sender gave up, be repeated by the store's client, or end in a
crash. After every step that changes the log, or a view of it, the oracle compares.

The search goes through all schedules of a tiny cast and looks at each state once. What it has seen, no promise broken:

    compactor, remover, joiner                                 2,194 states
    one writer, splitter, compactor                            4,701
    two writers of two batches, two answers lost or late       6,964
    one writer, splitter, compactor, one answer lost or late  47,013
    two compactors, closer                                    75,976
    two writers, splitter, compactor                         432,651

Trimming the log, deleting files, and merging where order matters have models of their own, beside this one.
"""
