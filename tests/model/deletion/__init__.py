"""A model of deletion: garbage collection, readers' pins, tags, and the deletion of orphans.

It is pure Python without I/O and shares no code with Lakebed: it specifies what must hold, not how it is done. The log
is assumed correct (`tests/model/truncation`): an entry is created if the state it was validated on is still the latest.
Delays do not protect anything here: a file may be collected as soon as its last reference is dropped, and an object is
an orphan as soon as it is written. The protocol must be correct without the delays that make races rare.

    state     files, dead marks, cutoff, earliest retained version, tags, open jobs; pure                state.py
    store     objects with last-modified times, pins, the newest entry; what may never happen              store.py
    actors    writers, compactors, readers with pins, taggers, collectors, sweepers           actors.py
    rules     the protocol, each rule with the forms that look right                          rules.py

There are two races. A reader and a collector: each writes (a pin, a mark) before it reads (the marks, the pins), so at
least one sees the other's write. A writer and a sweep: the sweep's cutoff is itself an entry, so a file too old to be
safe cannot be committed after it, and one that was committed before it is read by the sweep.

It shows that under the rules of docs/decisions/0013 no object that the latest state, a tag or a checked pin needs is
ever deleted, no open job is refused for the age of its output, and no request takes effect twice; and that each rule is
needed: 18 simpler forms break that.
"""
