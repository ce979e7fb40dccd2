"""A model of deletion: garbage collection, readers' pins, tags, and the sweep of orphans.

It is pure Python without I/O and shares no code with Lakebed: it says what must hold, not how it is done. The log is
taken for granted (`tests/model/truncation`): an entry is won by whoever puts it while the state it was validated on is
the newest. Nor does any delay protect anything here: a file may be collected as soon as its last reference is dropped,
and an object is an orphan as soon as it is written. What delays make rare must not be wrong without them.

    state     files, dead marks, cutoff, earliest retained version, tags, open jobs; pure                state.py
    store     objects with last-modified times, pins, the newest entry; what may never happen              store.py
    actors    writers, compactors, readers with pins, taggers, collectors, sweepers           actors.py
    rules     the protocol, each rule with the forms that look right                          rules.py

Two races, one cure each. A reader and a collector: each writes (a pin, a mark) before it reads (the marks, the pins),
so one of them always sees the other. A writer and a sweep: the sweep's cutoff is itself an entry, so a file too old
to be safe cannot be committed after it, and one that was committed before it is seen.

It shows that under the rules of docs/decisions/0013 nothing that the newest state, a tag or a checked pin needs is ever
deleted, no open job is refused for the age of its output, and no request takes effect twice; and that each rule is
needed: 18 simpler forms break that.
"""
