"""The objects of an instance on local disk, and documents with other contents and a valid digest, as a program with a
fault would write them.
"""

import json
from pathlib import Path

from lakebed.model.documents import encode_document


def objects(root: Path) -> dict[str, Path]:
    """The files of the objects below a folder, by name; hidden ones are temporaries of the store."""
    found = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    return {name: path for name, path in found.items() if not any(part.startswith(".") for part in name.split("/"))}


def contents(root: Path) -> dict[str, bytes]:
    """The bytes of the objects below a folder, by name."""
    return {name: path.read_bytes() for name, path in objects(root).items()}


def rewritten(data, lines=None, **header):
    """The document with other members in its header, or other lines."""
    head, _, body = data.partition(b"\n")
    members = json.loads(head) | header
    given = {name: members.pop(name, None) for name in ("format", "features", "digest")}
    document = encode_document(members, body if lines is None else lines)
    if {name: header[name] for name in given if name in header}:
        # A header that no writer makes; its digest is checked later, if at all.
        head, _, body = document.partition(b"\n")
        document = json.dumps(json.loads(head) | header, separators=(",", ":")).encode() + b"\n" + body
    return document
