"""Which files below a folder a source means: the one rule of folders and globs, for every way in.

A folder means the files below it whose names end as those of a format. In a glob, ``*``, ``?`` and ``[…]`` stand for
characters of one name, and ``**`` for any number of folders; a file that it matches is meant whatever its name ends
with, and a folder that it matches means the files below it.

Rules. *Hidden* names begin with ``_`` or ``.``: markers, checksums, and the folders of unfinished tasks. Spark and Hive
do not read them. Nothing hidden is meant, at any depth, except by a part of a glob that itself begins with that
character, as in a shell: ``_old*/*.parquet``. A name that begins with ``_`` and contains ``=`` is not hidden, since it
is the folder of a partition column, as in Spark. Pure: no I/O.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field

_GLOB = re.compile(r"[*?\[]")
_ANY_FOLDERS = "**"


def has_glob(text: str) -> bool:
    """Return whether a path has a character that makes it a glob."""
    return _GLOB.search(text) is not None


def is_hidden(name: str) -> bool:
    """Return whether a file or folder of that name is left out unless it is named."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


@dataclass(frozen=True, slots=True)
class FilePattern:
    """The parts of a glob after its fixed folder, none for a folder; files of folders end with one of ``suffixes``.

    A *state* is the number of parts that the names so far have matched: all of them is a match, one more is a place
    below a match.
    """

    parts: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ("",)
    _known: dict[tuple[str, ...], frozenset[int]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, path: str, suffixes: tuple[str, ...]) -> tuple[str, FilePattern]:
        """Return the fixed folder of a glob, and the pattern below it."""
        folder, parts = [], path.split("/")
        while not has_glob(parts[0]):
            folder.append(parts.pop(0))
        return "/".join(folder) or ("/" if path.startswith("/") else "."), cls(tuple(filter(None, parts)), suffixes)

    def means(self, names: tuple[str, ...]) -> bool:
        """Return whether the file is meant whose path below the folder has these names."""
        if not names:
            return False
        states = self._after(self._states(names[:-1]), names[-1])
        return self._is_match(states) or (len(self.parts) + 1 in states and names[-1].lower().endswith(self.suffixes))

    def matches(self, names: tuple[str, ...]) -> bool:
        """Return whether a glob matches the file itself, and not only a folder above it."""
        return bool(names) and self._is_match(self._after(self._states(names[:-1]), names[-1]))

    def below(self, names: tuple[str, ...]) -> frozenset[int]:
        """Return the states at the folder with these names: none if no file below it can be meant, and equal for
        folders below which the same files are.
        """
        return self._states(names)

    def _is_match(self, states: frozenset[int]) -> bool:
        return bool(self.parts) and len(self.parts) in states

    def _states(self, names: tuple[str, ...]) -> frozenset[int]:
        """Return the states at a folder."""
        if names not in self._known:
            found = self._after(self._states(names[:-1]), names[-1]) if names else self._closed({0})
            self._known[names] = found
        return self._known[names]

    def _after(self, states: frozenset[int], name: str) -> frozenset[int]:
        """Return the states after one more name."""
        end, found = len(self.parts), set()
        for state in states:
            part = self.parts[state] if state < end else _ANY_FOLDERS
            if is_hidden(name) and not part.startswith(name[0]):
                continue
            if part == _ANY_FOLDERS:
                found |= {state, end} if state == end - 1 else {state} if state < end else {end + 1}
            elif fnmatch.fnmatchcase(name, part):
                found.add(state + 1)
        return self._closed(found)

    def _closed(self, states: set[int]) -> frozenset[int]:
        """Return the states and those reached without a name: ``**`` before another part also stands for no folder."""
        for place, part in enumerate(self.parts[:-1]):
            if part == _ANY_FOLDERS and place in states:
                states.add(place + 1)
        return frozenset(states)
