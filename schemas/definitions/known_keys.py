"""Every key of the language by the map it stands in: supported, not of this version, often mistaken."""

from typing import Final

from schemas.definitions.fields import Known

_KINDS_ADVICE: Final = (
    "Write `pages:`. The kind follows from the placeholder you use: {token} is a token, {page} a page"
    " number, {offset} an offset, {last.id} the last record."
)

REQUEST_KEYS: Final = (
    "get", "post", "params", "headers", "body", "graphql", "variables", "records", "id", "read_as",
    "pages", "errors",
)  # fmt: skip
STREAM_KEYS: Final = (
    "plan", "schedule", "upstream_retention", "deletes", "keep_pages", "keep_snapshots",
)  # fmt: skip
CHANGES_STREAM_KEYS: Final = (
    "schedule",
    "upstream_retention",
    "deletes",
    "keep_pages",
    "keep_snapshots",
)
_REQUEST_ADVICE: Final = {
    "paginator": _KINDS_ADVICE,
    "pagination": _KINDS_ADVICE,
    "paging": _KINDS_ADVICE,
    "path": "Write `get:` or `post:` and the path.",
    "url": "Write `get:` or `post:` and the path behind `base_url`.",
    "method": "Write `get: /path` or `post: /path`.",
    "query": "Write `params:`; a query of GraphQL is `graphql:`.",
    "json": "Write `body:`.",
    "primary_key": "Write `id:`.",
    "data_path": "Write `records:`.",
    "incremental": "Write `plan: {interval: …}`.",
    "cursor": "It belongs below `plan:`.",
    "interval": "It belongs below `plan:`.",
    "keyset": "It belongs below `plan:`.",
    "snapshot": "It belongs below `plan:`.",
    "retries": "Write `limits: {attempts: 6}` at the source.",
}

SOURCE: Final = Known(
    (
        "gapless", "source", "base_url", "auth", "tenants", "limits", "streams", "mappings", "mode",
        *REQUEST_KEYS, *STREAM_KEYS,
    ),
    advice={**_REQUEST_ADVICE, "parent": "Write it at the stream.", "url": "Write `base_url:`.", "name": "Write `source:`.",
     "rate": "Write `limits: {rate: 20/s}`.", "timeout": "Write `limits: {timeout: 30s}`."},
)  # fmt: skip
STREAM: Final = Known(("parent", *REQUEST_KEYS, *STREAM_KEYS), advice=_REQUEST_ADVICE)
PARENT: Final = Known(("stream", "when", "on"))
PLAN: Final = Known(
    ("interval", "keyset", "cursor", "snapshot", "python", "singer"),
    advice={
        "type": "The kind of a plan is its key: `interval:`, `keyset:`, `cursor:` or `snapshot:`.",
    },
)
INTERVAL: Final = Known(
    (
        "time", "start", "format", "granularity", "zone", "bounds", "settle", "lookback", "order",
        "width", "width_min", "result_cap", *REQUEST_KEYS, *CHANGES_STREAM_KEYS,
    ),
    advice={**_REQUEST_ADVICE, "cursor_field": "Write `time:`.", "field": "Write `time:`.",
     "every": "Write `schedule: {every: 5m}`.", "timezone": "Write `zone:`.",
     "end": "An interval ends at the server's clock less `settle`."},
)  # fmt: skip
_WINDOWS_ADVICE: Final = (
    "It belongs to `interval`: a keyset reads on from the last record, however many follow."
)
KEYSET: Final = Known(
    (
        "time", "start", "format", "granularity", "zone", "bounds", "settle", "lookback",
        *REQUEST_KEYS, *CHANGES_STREAM_KEYS,
    ),
    advice={**_REQUEST_ADVICE, "cursor_field": "Write `time:`.", "field": "Write `time:`.",
     "every": "Write `schedule: {every: 5m}`.", "timezone": "Write `zone:`.",
     "order": "Take it out: a keyset is in the order of time and id, and checked.",
     **dict.fromkeys(("width", "width_min", "result_cap"), _WINDOWS_ADVICE)},
)  # fmt: skip
CURSOR: Final = Known(
    ("next", "start", "lifetime", "identity", "on_reset", *REQUEST_KEYS, *CHANGES_STREAM_KEYS),
    advice=_REQUEST_ADVICE,
)
SNAPSHOT: Final = Known(
    ("every", "keep_snapshots", *REQUEST_KEYS),
    advice={**_REQUEST_ADVICE, "deletes": "It speaks of the changes; write it at the stream.",
     "schedule": "Write `every:`.", "keep_pages": "Write it at the stream.",
     "upstream_retention": "Write it at the stream."},
)  # fmt: skip
PYTHON: Final = Known(
    ("class", "settings", "hang", "headers", "errors", *CHANGES_STREAM_KEYS),
    advice={"config": "Write `settings:`.", "path": "Write `class: package.module:Class`.",
     "module": "Write `class: package.module:Class`.", "timeout": "Write `hang:`.",
     **dict.fromkeys(
         ("get", "post", "params", "body", "records", "pages"), "The class says what to ask.")},
)  # fmt: skip
SINGER: Final = Known(
    (
        "command", "config", "environment", "catalog", "stream", "others", "state", "hang",
        *CHANGES_STREAM_KEYS,
    ),
    advice={"tap": "Write `command: [tap-name]`.", "env": "Write `environment:`.",
            "settings": "Write `config:`.", "timeout": "Write `hang:`.",
            "select": "Write `stream:` as the tap names it.",
            "properties": "Write `catalog:`."},
)  # fmt: skip
CATALOG: Final = Known(("file",))
IDENTITY: Final = Known(("get", "value", "head"))
AUTH: Final = Known(
    ("bearer", "basic", "api_key", "session", "oauth2"),
    advice={
        "token": "Write `bearer: {env: NAME}`.",
        "type": "The kind is the key: `bearer:`, `basic:` …",
        "oauth": "Write `oauth2:`.",
    },
)
BASIC: Final = Known(("user", "password"), advice={"username": "Write `user:`."})
API_KEY: Final = Known(("header", "param", "value"))
SESSION: Final = Known(
    ("post", "body", "token", "header", "scheme", "lifetime"),
    advice={"prefix": "Write `scheme: Bearer`."},
)
OAUTH2: Final = Known(
    (
        "token_url", "client_id", "client_secret", "client_auth", "scopes", "params",
        "refresh_token", "store",
    ),
    advice={
        "url": "Write `token_url:`.",
        "scope": "Write `scopes: [a, b]`.",
        "audience": "Write `params: {audience: …}`.",
        "resource": "Write `params: {resource: …}`.",
        "grant_type": "It follows from `refresh_token:`; without one it is client credentials.",
        "access_token": "Write `auth: {bearer: …}`.",
    },
)  # fmt: skip
TENANTS: Final = Known(
    ("list", "file", "command", "every"),
    advice={"path": "Write `file:`.", "interval": "Write `every: 1m`."},
)
LIMITS: Final = Known(
    ("rate", "concurrency", "per", "timeout", "body_max", "attempts", "wait_max", "reserve"),
    advice={"retries": "Write `attempts:`.", "rps": "Write `rate: 20/s`."},
)
PAGES: Final = Known(
    ("next", "next_is", "size", "cap", "first", "end", "total", "stable", "token_lifetime"),
    advice={
        "type": "The kind follows from the placeholder in the request: {token}, {page}, {offset} or"
        " {last.id}.",
        "limit": "Write `size:`.",
        "page_size": "Write `size:`.",
    },
)
ERROR_RULE: Final = Known(("when", "do", "until", "wait", "because"))
SCHEDULE: Final = Known(
    ("every", "cron", "zone", "deadline", "stages"), advice={"timezone": "Write `zone:`."}
)
MAPPING: Final = Known(
    (
        "gapless", "mapping", "version", "from", "table", "key", "revision", "entity", "where",
        "deleted", "absent", "absent_max", "columns", "children", "events", "subjects", "incident", "keep",
        "faults",
        "python",
    ),
    {},
    {"name": "Write `mapping:`.", "source": "Write `from: source/stream`.",
     "primary_key": "Write `key:`.", "fields": "Write `columns:`.", "filter": "Write `where:`."},
)  # fmt: skip
INLINE_MAPPING: Final = Known(
    tuple(key for key in MAPPING.keys if key not in ("gapless", "mapping")),
    MAPPING.unsupported,
    MAPPING.advice,
)
CHILD: Final = Known(
    ("path", "key", "columns", "table"),
    advice={"primary_key": "Write `key:`.", "fields": "Write `columns:`.",
            "revision": "The parent's decides: children are replaced with it, as a set.",
            "children": "A child has none: keep the inner list as a `jsonb` column.",
            "where": "Every element is a row; filter in SQL.", "name": "Write `table:`."},
)  # fmt: skip
REVISION: Final = Known(("path", "type", "kind", "from", "zone", "pattern"))
COLUMN: Final = Known(
    (
        "path", "const", "type", "required", "default", "min", "max", "values", "unknown", "from",
        "zone", "pattern", "personal",
    ),
    advice={"format": "Write `from:`.", "enum": "Write `values:`.", "regex": "Write `pattern:`.",
            "nullable": "Write `required: true` where NULL is a fault."},
)  # fmt: skip
ALTERNATIVE: Final = Known(("path", "pattern", "prefix"))
FUNCTION: Final = Known(
    ("function", "hang", "memory"),
    advice={"path": "Write `function: package.module:name`.", "timeout": "Write `hang:`."},
)
UNKNOWN_USE: Final = Known(("use",))
PERSONAL: Final = Known(("hash",), advice={"key": "Write `personal: {hash: {env: HASH_KEY}}`."})
EVENTS: Final = Known(("to", "created", "changed", "deleted"))
EVENTS_TO: Final = Known(
    ("topic", "post", "auth"),
    advice={"url": "Write `post:`.", "http": "Write `post:`.", "webhook": "Write `post:`.",
            "headers": "Only `auth:` can be given."},
)  # fmt: skip
EVENTS_AUTH: Final = Known(
    ("bearer", "basic", "api_key"),
    dict.fromkeys(
        ("session", "oauth2"),
        "Write `bearer: {env: NAME}`, or `bearer: {command: [..]}` where a program prints a token;"
        " else `basic:` or `api_key:`.",
    ),
)
CHANGED: Final = Known(("type", "fields"))
KEEP: Final = Known(
    ("quarantine",),
    {
        "rows": "Take it out: rows stay, and a view can choose by age. One that is deleted by hand may"
        " come back with the next listing, or older than it was."
    },
)
FAULTS: Final = Known(("max",), advice={"halt": "Write `faults: halt`."})
