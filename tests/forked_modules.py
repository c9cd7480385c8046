"""Imports what the product's processes import; only the process that they are forked from does."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import pkgutil

# Not needed by any worker, and slow to import.
_SKIPPED = ("ops.dashboards", "ops.grafana", "ops.demo")


def import_all() -> None:
    """All modules of the product, without running any."""
    for root in ("schemas", "ingest", "apply", "ops"):
        package = importlib.import_module(root)
        for found in pkgutil.walk_packages(package.__path__, f"{root}."):
            if not found.name.startswith(_SKIPPED):
                importlib.import_module(found.name)
    for name in ("structlog.dev", "psycopg", "psycopg_pool"):
        if importlib.util.find_spec(name) is not None:
            importlib.import_module(name)


import_all()
# What is shared with the children stays shared: their collections do not touch it.
gc.freeze()
