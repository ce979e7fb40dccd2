"""A model of the protocol: how transactions get into the log, and what they may do to leaves, references and jobs.

It is pure Python without I/O and shares no code with Lakebed: it says what must hold, not how it is done.

    process   a committer and the clients that offer it transactions        committer.py, clients.py
    store     the log: numbered entries, put if absent                      world.py
    state     leaves, references, open jobs, request keys on record         state.py, transactions.py, rows.py
    oracle    what each transaction meant, so what every reader must see    checks.py
    rules     the protocol, each rule with the forms that look right        rules.py, wrong_forms.py
    schedule  who goes next, what fails: a seed, or all of them in turn     schedule.py, scenario.py, casts.py

Actors are generators that yield wherever another process may come between: at each call to the store, and where a
client waits for its committer. A put may lose its answer, be lost, arrive after its sender gave up, be repeated by the
store's client, or end in a crash. After every step that changes the log, or a view of it, the oracle compares.

One integer replays a random schedule: `run_seed(seed, Rules(), trace=[])`. The search goes through all schedules of a
tiny cast and looks at each state once. What it has seen, without a violation:

    one writer, splitter, compactor                            3,420 states
    two writers of two batches, two answers lost or late       3,971
    one writer, splitter, compactor, one answer lost or late  30,008
    compactor, remover, joiner                                33,605
    two writers, splitter, compactor                         306,612
    two compactors, closer                                   695,336

Trimming the log, deleting files, and merging where order matters have models of their own, beside this one.
"""
