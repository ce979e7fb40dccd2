"""The log of one table or of the catalog: numbered entries, the only source of truth.

``backend`` is what a place for entries promises, ``entry`` their written form, ``committer`` the protocol,
``last-modified times`` when an entry was stored, ``checkpoint`` a derived short cut for opening.
"""
