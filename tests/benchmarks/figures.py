"""What was measured: samples by name, their medians as a table, and `bench.json`."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity over several runs."""

    median: float
    min: float
    max: float
    runs: int
    unit: str


class Samples:
    """Collects what the runs measured."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = defaultdict(list)
        self._units: dict[str, str] = {}

    def add(self, name: str, value: float, unit: str) -> None:
        self._values[name].append(value)
        self._units[name] = unit

    def figures(self) -> dict[str, Figure]:
        """All quantities in the order of their names."""
        return {
            name: Figure(
                statistics.median(values), min(values), max(values), len(values), self._units[name]
            )
            for name, values in sorted(self._values.items())
        }


def write(figures: dict[str, Figure], file: Path) -> None:
    """The figures as JSON: name → median, min, max, runs, unit."""
    shown = {name: asdict(figure) for name, figure in figures.items()}
    file.write_text(json.dumps(shown, indent=2) + "\n", "utf-8")


def table(figures: dict[str, Figure], floors: dict[str, tuple[str, float]]) -> str:
    """The figures as lines of text; `floors`: name → `>=` or `<`, and the number to keep."""
    lines = [f"{'':<28}{'median':>12}{'min':>12}{'max':>12}{'runs':>6}  unit"]
    for name, figure in figures.items():
        numbers = "".join(f"{_short(n):>12}" for n in (figure.median, figure.min, figure.max))
        line = f"{name:<28}{numbers}{figure.runs:>6}  {figure.unit}"
        if name in floors:
            sign, bound = floors[name]
            kept = figure.median >= bound if sign == ">=" else figure.median < bound
            line += f"  ({sign} {_short(bound)}: {'kept' if kept else 'MISSED'})"
        lines.append(line)
    return "\n".join(lines)


def _short(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:.3f}"
