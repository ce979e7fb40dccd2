"""A model of a truncated log: checkpoints, a log start below which entries are deleted, request keys, followers.

It is pure Python without I/O and shares no code with Lakebed: it specifies what must hold, not how it is done.
`tests/model/protocol` covers the effects of entries on partitions and files; here an entry is one transaction that only
records its request key.

    store     entries put if absent, log start, checkpoints; faults; the oracle     store.py
    actors    open, follow, commit; writers, readers, trimmers, droppers of keys    actors.py
    rules     the protocol, each rule with the forms that look right                rules.py
    casts     the actors: drawn from a seed, or tiny                                casts.py

The danger: "already exists" protects a version only while no entry is deleted. Once an entry is deleted, its version is
free; a process that slept can create it again, and a follower of that entry follows a log that no other process has.

The answer is the log start, one small object: entries up to it may be deleted. It is raised before anything is deleted,
by compare-and-set, and only up to a point covered by two checkpoints that were read back. A process that has put an
entry, missed one, or read one, reads the log start *afterwards*, and starts from a checkpoint again if its own state is
below.

It shows that under the rules of docs/decisions/0011 no schedule loses, doubles or denies a committed transaction, keeps
a follower stale or on another history, or locks any process out while one of two checkpoints is valid; and that each
rule is needed: 21 simpler forms break a promise.
"""
