"""What a read does, counted where it is done: the same counters on every read, looked at by ``Table.explain``."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakebed import clock


@dataclass(slots=True)
class ReadStatistics:
    """Counts of one read, used by one thread. Bytes are those of pages, indexes and dictionaries as they are stored.

    ``files`` are those that were opened to read rows. ``steps`` has seconds by name, in the order in which the steps
    began; a step that comes again adds to its own.
    """

    files_by_filter: int = 0
    files: set[str] = field(default_factory=set)
    row_groups: int = 0
    pages: int = 0
    size_bytes: int = 0
    rows: int = 0
    engine: bool = False
    steps: dict[str, float] = field(default_factory=dict)

    def add(self, other: ReadStatistics) -> None:
        """Count what another thread did for the same read, but for its steps, which are this one's."""
        self.files_by_filter += other.files_by_filter
        self.files |= other.files
        self.row_groups += other.row_groups
        self.pages += other.pages
        self.size_bytes += other.size_bytes
        self.rows += other.rows
        self.engine |= other.engine

    def step(self, name: str) -> _Step:
        """Time what is done inside the block."""
        return _Step(self.steps, name)


@dataclass(slots=True)
class _Step:
    """A lookup takes several, each of microseconds, so it is no generator."""

    steps: dict[str, float]
    name: str
    began_s: float = 0.0

    def __enter__(self) -> None:
        self.began_s = clock.monotonic_s()

    def __exit__(self, *raised: object) -> None:
        self.steps[self.name] = self.steps.get(self.name, 0.0) + clock.monotonic_s() - self.began_s
