"""A commented first source and mapping for an API that no definition is shipped for. Pure.

What stands there loads as it is; every line that has to be looked up in the API's documentation says so.
"""

from __future__ import annotations

import re

from ops.problems import USAGE, Stop
from ops.scaffold.files import MAPPING_SCHEMA, SOURCE_SCHEMA, with_schema

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")

_SOURCE = """\
# NAME: how its API is asked, and what is true of it. Then: gapless check NAME
gapless: 1
source: NAME
base_url: https://api.example.com/v1     # the only origin that is asked
auth: {bearer: {env: SECRET_TOKEN}}      # or basic:, api_key:, session:, oauth2:; secrets by reference
# limits: {rate: 10/s, concurrency: 2}   # what the API allows; it is obeyed when it says less
streams:
  items:                                 # one collection; its partition id is NAME/items
    get: /items
    params:
      updated_from: "{start}"            # what the API calls the ends of a window
      updated_to: "{end}"                # take it out if it has no such parameter
      page_token: "{token}"              # left out on the first page; or {page}, {offset}, {last.id}
      limit: "{size}"
    records: body.items                  # where the list is; `body` if the answer is a list
    pages:
      next: body.next_page_token         # or header.link, then no {token}
      size: 100
    deletes: not_shown                   # `shown` if changes tell of them; the snapshot finds the rest
    # upstream_retention: 30d            # if the API forgets: older state is a gap
    plan:
      interval:                          # changes
        time: updated_at                 # the field of a record that the API filters by
        start: 2024-01-01                # where the past begins
        # format: rfc3339_ms             # how times are asked: rfc3339, unix_s, unix_ms, a pattern
        # bounds: "[)"                   # which ends the API includes; not said: asked wider
      snapshot:                          # deletes, and changes that nobody stamps
        every: 7d
        params: {updated_from: null, updated_to: null}
    schedule: {every: 5m}
    # errors:                            # what an answer means, if its status does not say it
    #   - {when: {status: 403, header.retry-after: {exists: true}}, do: rate_limited}
"""

_MAPPING = """\
# What becomes of a record of NAME/items. Then: gapless check NAME, gapless migrate
gapless: 1
mapping: NAME_items
version: 1                               # raise it with every change
from: NAME/items
table: TABLE_items
# where: {kind: {not: draft}}            # other records are ignored, and counted
key: id                                  # tenant_id joins by itself if the source has tenants
revision: updated_at::timestamptz        # the provider's own order of an item's states; or `none`
# deleted: {status: deleted}             # if the record itself says so
columns:
  id: {type: text, personal: false}      # only `personal: false` is ever shown in logs and messages
  name: {type: text, personal: keep}     # a type alone reads the field of that name
  status: state.name::text               # path::type
  # amount: total.value::numeric(12,2)
  # tags: {path: "tags[*].name", type: "text[]"}
  # kind: {type: text, values: [a, b]}   # others are quarantined
  updated_at: timestamptz
"""


def starting_point(name: str) -> dict[str, str]:
    """A source and its mapping by their paths. Raises Stop for what cannot name a source."""
    if _NAME.fullmatch(name) is None:
        raise Stop(
            f'"{name}" cannot name a source. Use letters, digits, `_` and `-`, at most 41; begin'
            " with a letter.",
            USAGE,
        )
    table = name.lower().replace("-", "_")
    secret = name.upper().replace("-", "_")
    source = _SOURCE.replace("NAME", name).replace("SECRET", secret)
    mapping = _MAPPING.replace("NAME", name).replace("TABLE", table)
    return {
        f"sources/{name}.yaml": with_schema(source, SOURCE_SCHEMA),
        f"mappings/{name}.yaml": with_schema(mapping, MAPPING_SCHEMA),
    }
