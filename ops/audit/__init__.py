"""`gapless audit`: re-reads the whole log and proves that every record has exactly one outcome.

Pure checks (pages, marks, checkpoints, positions, coverage, spans) are apart from the edges that
read (`sink`, `ops.facts.log`, `run`).
"""

from ops.audit.report import Report
from ops.audit.run import audit

__all__ = ["Report", "audit"]
