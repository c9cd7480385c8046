"""Writes definitions into a folder and loads them, for the tests of the language."""

from pathlib import Path
from textwrap import dedent

from schemas.definitions import Definitions, load_folder

SHOP = """\
gapless: 1
source: shop
base_url: https://api.shop.example/v2
auth:
  bearer: {env: SHOP_TOKEN}
streams:
  orders:
    get: /orders
    params:
      changed_from: "{start}"
      changed_to: "{end}"
      page_token: "{token}"
      limit: "{size}"
    records: body.items
    pages:
      next: body.next_page_token
      size: 200
    plan:
      interval:
        time: updated_at
        start: 2024-01-01
      snapshot:
        every: 7d
    schedule: {every: 5m}
"""

ORDERS = """\
gapless: 1
mapping: shop_orders
version: 1
from: shop/orders
table: orders
key: id
revision: updated_at::timestamptz
columns:
  id: text
  total: amount.total::numeric(12,2)
  updated_at: timestamptz
"""


def load(folder: Path, source: str = SHOP, mapping: str | None = ORDERS) -> Definitions:
    """The definitions of one source and, if given, one mapping."""
    for name, text in (("sources/shop.yaml", source), ("mappings/shop_orders.yaml", mapping)):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None:
            path.write_text(dedent(text), encoding="utf-8")
    return load_folder(folder)


def changed(text: str, *changes: tuple[str, str]) -> str:
    """The text with each old part, which must be there once, replaced by the new one."""
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def messages(definitions: Definitions) -> list[str]:
    """The problems as a user reads them."""
    return [str(problem) for problem in definitions.problems]
