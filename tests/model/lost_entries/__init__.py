"""A model of a log that loses entries: a fail-over forgets the newest ones, or one is deleted from the middle.

It is pure Python without I/O and shares no code with Lakebed: it specifies what must hold, not how it is done. The
other models assume that entries stay; here they do not. What was lost is lost. The promise is that no writer builds on
the loss, and that no reader takes what is left before a gap for the whole log.

    store     entries with the id of the one before, what is lost, the oracle    store.py
    actors    writers and readers, the fail-over, the deletion                   actors.py
    rules     the protocol, each rule with the forms that look right             rules.py

A database appends an entry only behind the one that the writer knows, by its digest, and only if nothing is beyond it
(one condition of the insert). At its first read a process looks past the end: an entry beyond the first missing one is
a witness that the log has lost one. Other writers append meanwhile, so it then reads the missing one again.

It shows that no entry continues one that is not in the log, that no first read ends before a gap, and that no process
reports a loss where there was none; and that each rule is needed: 5 simpler forms break that.
"""
