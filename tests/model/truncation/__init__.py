"""A model of the log that forgets: checkpoints, a log start below which entries are deleted, request keys, followers.

It is pure Python without I/O and shares no code with Lakebed: it says what must hold, not how it is done. What an entry
does to partitions and files is the matter of `tests/model/protocol`; here an entry is one transaction that only leaves
its request key behind.

    store     entries put if absent, floor, checkpoints; faults; what a reader must see      store.py
    actors    open, follow, commit; writers, readers, trimmers, those who forget keys       actors.py
    rules     the protocol, each rule with the forms that look right                        rules.py
    casts     who takes part: drawn from a seed, or tiny                                    casts.py

The danger: "already exists" fences a number only while nothing is ever deleted. Once an entry is, its version is free;
a process that slept can win it again, and whoever follows from there follows a log that nobody else has.

The answer is the log start, one small object: entries up to it may be deleted. It is raised before anything is deleted,
by compare-and-set, and only behind two checkpoints that were read back. Whoever has put an entry, has missed one, or
has read one, reads the log start *afterwards*, and starts from a checkpoint again if what he stands on lies below.

It shows that under the rules of docs/decisions/0011 no schedule loses, doubles or denies a committed transaction, keeps
a follower stale or on another history, or shuts anybody out while one of two checkpoints is whole; and that each rule
is needed: 18 simpler forms break a promise.
"""
