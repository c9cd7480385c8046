"""JSON Schemas of definitions, for editors: made from the loader's own tables of keys and words.

They say which keys and which words may stand where, so that an editor completes and underlines. What
has to fit together is told by the loader alone: a schema never refuses what the loader takes.
"""

from typing import Final

from schemas.definitions import known_keys
from schemas.definitions.json_schema_mapping import mapping_of
from schemas.definitions.json_schema_parts import (
    DURATION,
    FLAG,
    FUNCTION_PATH,
    NAME,
    PREDICATE,
    RATE,
    TEXT,
    VALUES,
    WHOLE,
    Schema,
    fixed_auth,
    map_of,
    named_by,
    reference_to_secret,
    word_or,
    words,
)
from schemas.definitions.source import Action, Bounds, End, Order

_DRAFT: Final = "http://json-schema.org/draft-07/schema#"


def source_schema() -> Schema:
    """The schema of `sources/*.yaml`."""
    streams = named_by(_stream())
    values = {
        **_request_values(),
        **_stream_values(),
        "gapless": {"const": 1},
        "source": NAME,
        "auth": _auth(),
        "tenants": map_of(
            known_keys.TENANTS,
            {
                "list": {"type": "array"},
                "file": TEXT,
                "command": {"type": "array"},
                "every": DURATION,
            },
        ),
        "limits": _limits(),
        "streams": streams,
        "mappings": named_by(mapping_of(known_keys.INLINE_MAPPING)),
        "mode": words("live"),
    }
    return {
        "$schema": _DRAFT,
        "title": "A source of Gapless",
        **map_of(known_keys.SOURCE, values, ("gapless", "source", "streams")),
    }


def mapping_schema() -> Schema:
    """The schema of `mappings/*.yaml`."""
    return {
        "$schema": _DRAFT,
        "title": "A mapping of Gapless",
        **mapping_of(known_keys.MAPPING, ("gapless", "mapping")),
    }


def _auth() -> Schema:
    reference = reference_to_secret()
    session = {
        "post": TEXT, "body": VALUES, "token": TEXT, "header": TEXT, "scheme": TEXT,
        "lifetime": DURATION,
    }  # fmt: skip
    oauth2 = {
        "token_url": reference,
        "client_secret": reference,
        "client_auth": words("basic", "body"),
        "scopes": {"type": ["array", "string"]},
        "params": VALUES,
        "refresh_token": reference,
        "store": TEXT,
    }
    return map_of(
        known_keys.AUTH,
        {
            **fixed_auth(),
            "session": map_of(known_keys.SESSION, session),
            "oauth2": map_of(known_keys.OAUTH2, oauth2),
        },
    )


def _limits() -> Schema:
    durations = dict.fromkeys(("timeout", "wait_max", "reserve"), DURATION)
    return map_of(
        known_keys.LIMITS,
        {
            **durations,
            "rate": RATE,
            "concurrency": WHOLE,
            "attempts": WHOLE,
            "per": words("credential", "tenant"),
        },
    )


def _request_values() -> dict[str, Schema]:
    rule = map_of(
        known_keys.ERROR_RULE,
        {"when": PREDICATE, "do": words(*Action), "until": TEXT, "because": TEXT},
        ("when", "do"),
    )
    return {
        "get": TEXT,
        "post": TEXT,
        "params": VALUES,
        "headers": VALUES,
        "body": VALUES,
        "graphql": TEXT,
        "variables": VALUES,
        "records": TEXT,
        "id": TEXT,
        "read_as": words("json", "ndjson"),
        "pages": word_or("none", _pages()),
        "errors": {"type": "array", "items": rule},
    }


def _pages() -> Schema:
    end = {"anyOf": [words(*End), PREDICATE]}
    numbers = dict.fromkeys(("size", "cap", "first"), WHOLE)
    return map_of(
        known_keys.PAGES,
        {
            **numbers,
            "next": TEXT,
            "next_is": words("token", "link"),
            "end": end,
            "total": TEXT,
            "stable": FLAG,
            "token_lifetime": DURATION,
        },
    )


def _stream_values() -> dict[str, Schema]:
    return {"plan": _plans(), **_changes_values()}


def _changes_values() -> dict[str, Schema]:
    return {
        "schedule": map_of(
            known_keys.SCHEDULE,
            {
                "every": DURATION,
                "cron": TEXT,
                "zone": TEXT,
                "deadline": DURATION,
                "stages": {"type": "array", "items": NAME},
            },
        ),
        "upstream_retention": DURATION,
        "deletes": words("shown", "not_shown"),
        "keep_pages": words("forever"),
        "keep_snapshots": WHOLE,
    }


def _stream() -> Schema:
    parent = map_of(
        known_keys.PARENT,
        {"stream": NAME, "when": PREDICATE, "on": words("all", "changed")},
        ("stream",),
    )
    return map_of(known_keys.STREAM, {"parent": parent, **_request_values(), **_stream_values()})


def _plans() -> Schema:
    request = _request_values()
    keyset = {
        **request,
        **_changes_values(),
        "time": TEXT,
        "granularity": DURATION,
        "bounds": words(*Bounds),
        "settle": word_or("none", DURATION),
        "lookback": word_or("none", DURATION),
    }
    interval = {
        **keyset,
        "order": words(*Order),
        "width": word_or("auto", DURATION),
        "width_min": DURATION,
        "result_cap": WHOLE,
    }
    cursor = {
        **request,
        **_changes_values(),
        "next": TEXT,
        "lifetime": DURATION,
        "identity": map_of(known_keys.IDENTITY, dict.fromkeys(("get", "value", "head"), TEXT)),
        "on_reset": words("reread", "stop"),
    }
    snapshot = {**request, "every": DURATION, "keep_snapshots": WHOLE}
    return map_of(
        known_keys.PLAN,
        {
            "interval": map_of(known_keys.INTERVAL, interval),
            "keyset": map_of(known_keys.KEYSET, keyset),
            "cursor": map_of(known_keys.CURSOR, cursor),
            "snapshot": map_of(known_keys.SNAPSHOT, snapshot),
            **_programs(request["headers"], request["errors"]),
        },
    )


def _programs(headers: Schema, errors: Schema) -> dict[str, Schema]:
    """The plans that are programs."""
    python = {
        **_changes_values(),
        "class": FUNCTION_PATH,
        "settings": VALUES,
        "hang": DURATION,
        "headers": headers,
        "errors": errors,
    }
    singer = {
        **_changes_values(),
        "command": {"type": "array", "items": TEXT},
        "config": VALUES,
        "environment": VALUES,
        "catalog": word_or("discover", map_of(known_keys.CATALOG, {"file": TEXT}, ("file",))),
        "stream": TEXT,
        "others": words("refuse", "ignore"),
        "state": words("kept", "none"),
        "hang": DURATION,
    }
    return {
        "python": map_of(known_keys.PYTHON, python, ("class",)),
        "singer": map_of(known_keys.SINGER, singer, ("command",)),
    }
