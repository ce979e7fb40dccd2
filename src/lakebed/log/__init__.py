"""The log of one table or of the catalog: numbered entries, the only source of truth.

``backends`` keep entries, ``entry`` their written form, ``committer`` the protocol,
``last-modified times`` when an entry was stored, ``checkpoint`` a derived short cut for opening.
"""
