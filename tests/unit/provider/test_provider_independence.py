"""The provider judges the product, so it may share no code with it."""

from __future__ import annotations

import json
import subprocess
import sys

_PRODUCT = ("apply", "ingest", "ops", "schemas")


def test_it_imports_no_product_code() -> None:
    code = "import json, sys, ops.demo.provider.__main__, tests.upstream; print(json.dumps(list(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    modules = [name for name in json.loads(run.stdout) if name.split(".")[0] in _PRODUCT]
    assert "ops.demo.provider.server" in modules
    assert [name for name in modules if not name.startswith("ops.demo.provider")] == [
        "ops",
        "ops.demo",
    ]
