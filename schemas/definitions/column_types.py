"""The Postgres types that a column or a revision may have."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type by its canonical Postgres name: `text`, `numeric`, `timestamptz`, `double precision` …"""

    name: str
    arguments: tuple[int, ...] = ()  # numeric(12,2): (12, 2); char(2): (2,)
    array: bool = False

    @property
    def sql(self) -> str:
        """The type as SQL writes it."""
        arguments = f"({','.join(map(str, self.arguments))})" if self.arguments else ""
        return f"{self.name}{arguments}{'[]' if self.array else ''}"
