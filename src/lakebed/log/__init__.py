"""The log of one table or of the catalog: numbered entries, the only source of truth.

``entry`` is the written form, ``committer`` the protocol, ``snapshot`` a derived short cut for opening.
"""
