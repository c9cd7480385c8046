"""JSON Schemas of definitions, for editors: made from the loader's own tables of keys and words.

They say which keys and which words may stand where, so that an editor completes and underlines. What
has to fit together is told by the loader alone: a schema never refuses what the loader takes.
"""

from collections.abc import Mapping
from typing import Any, Final

from schemas.definitions import known_keys
from schemas.definitions.fields import Known
from schemas.definitions.mapping import Personal, RevisionKind, Unknown
from schemas.definitions.secrets import KINDS
from schemas.definitions.source import Action, Bounds, End, Order

Schema = dict[str, Any]
_DRAFT: Final = "http://json-schema.org/draft-07/schema#"
_ANY: Final[Schema] = {}
_NAME: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,62}$"}
_SQL_NAME: Final = "^[a-z][a-z0-9_]{0,62}$"
_TEXT: Final[Schema] = {"type": "string"}
_WHOLE: Final[Schema] = {"type": "integer"}
_FLAG: Final[Schema] = {"type": "boolean"}
_DURATION: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,15}(us|ms|s|m|h|d)$"}
_RATE: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,9}/(s|m|h)$"}
_VALUES: Final[Schema] = {"type": ["object", "null"]}
_PREDICATE: Final[Schema] = {"type": ["object", "array"]}


def source_schema() -> Schema:
    """The schema of `sources/*.yaml`."""
    streams = _named(_stream())
    values = {
        **_request_values(),
        **_stream_values(),
        "gapless": {"const": 1},
        "source": _NAME,
        "auth": _auth(),
        "tenants": _map(
            known_keys.TENANTS,
            {
                "list": {"type": "array"},
                "file": _TEXT,
                "command": {"type": "array"},
                "every": _DURATION,
            },
        ),
        "limits": _limits(),
        "streams": streams,
        "mappings": _named(_mapping(known_keys.INLINE_MAPPING)),
        "mode": _words("live"),
    }
    return {
        "$schema": _DRAFT,
        "title": "A source of Gapless",
        **_map(known_keys.SOURCE, values, ("gapless", "source", "streams")),
    }


def mapping_schema() -> Schema:
    """The schema of `mappings/*.yaml`."""
    return {
        "$schema": _DRAFT,
        "title": "A mapping of Gapless",
        **_mapping(known_keys.MAPPING, ("gapless", "mapping")),
    }


def _map(known: Known, values: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """A map with the keys of a table and no others; a null is as if the key were not there."""
    alien = set(values) - set(known.keys)
    if alien:
        raise ValueError(f"the table does not have {', '.join(sorted(alien))}")
    properties = {
        key: _ANY if not values.get(key) else {"anyOf": [values[key], {"type": "null"}]}
        for key in known.keys
    }
    found: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**found, "required": list(required)} if required else found


def _words(*words: str) -> Schema:
    return {"enum": [str(word) for word in words]}


def _word_or(word: str, other: Schema) -> Schema:
    return {"anyOf": [_words(word), other]}


def _named(value: Schema) -> Schema:
    """A map of names that the user gives; a stream may be empty, then all stands further out."""
    either = {"anyOf": [value, {"type": "null"}]}
    return {"type": "object", "propertyNames": _NAME, "additionalProperties": either}


def _reference() -> Schema:
    one_of = dict.fromkeys(KINDS, _ANY)
    return {
        "type": ["object", "string"],
        "properties": one_of,
        "additionalProperties": False,
        "maxProperties": 1,
    }


def _auth() -> Schema:
    reference = _reference()
    session = {
        "post": _TEXT, "body": _VALUES, "token": _TEXT, "header": _TEXT, "scheme": _TEXT,
        "lifetime": _DURATION,
    }  # fmt: skip
    oauth2 = {
        "token_url": reference,
        "client_secret": reference,
        "client_auth": _words("basic", "body"),
        "scopes": {"type": ["array", "string"]},
        "params": _VALUES,
        "refresh_token": reference,
        "store": _TEXT,
    }
    return _map(
        known_keys.AUTH,
        {
            "bearer": reference,
            "basic": _map(known_keys.BASIC, {"password": reference}),
            "api_key": _map(
                known_keys.API_KEY, {"header": _TEXT, "param": _TEXT, "value": reference}
            ),
            "session": _map(known_keys.SESSION, session),
            "oauth2": _map(known_keys.OAUTH2, oauth2),
        },
    )


def _limits() -> Schema:
    durations = dict.fromkeys(("timeout", "wait_max", "reserve"), _DURATION)
    return _map(
        known_keys.LIMITS,
        {
            **durations,
            "rate": _RATE,
            "concurrency": _WHOLE,
            "attempts": _WHOLE,
            "per": _words("credential", "tenant"),
        },
    )


def _request_values() -> dict[str, Schema]:
    rule = _map(
        known_keys.ERROR_RULE,
        {"when": _PREDICATE, "do": _words(*Action), "until": _TEXT, "because": _TEXT},
        ("when", "do"),
    )
    return {
        "get": _TEXT,
        "post": _TEXT,
        "params": _VALUES,
        "headers": _VALUES,
        "body": _VALUES,
        "graphql": _TEXT,
        "variables": _VALUES,
        "records": _TEXT,
        "id": _TEXT,
        "read_as": _words("json", "ndjson"),
        "pages": _word_or("none", _pages()),
        "errors": {"type": "array", "items": rule},
    }


def _pages() -> Schema:
    end = {"anyOf": [_words(*End), _PREDICATE]}
    numbers = dict.fromkeys(("size", "cap", "first"), _WHOLE)
    return _map(
        known_keys.PAGES,
        {
            **numbers,
            "next": _TEXT,
            "next_is": _words("token", "link"),
            "end": end,
            "total": _TEXT,
            "stable": _FLAG,
            "token_lifetime": _DURATION,
        },
    )


def _stream_values() -> dict[str, Schema]:
    return {"plan": _plans(), **_changes_values()}


def _changes_values() -> dict[str, Schema]:
    return {
        "schedule": _map(
            known_keys.SCHEDULE,
            {
                "every": _DURATION,
                "cron": _TEXT,
                "zone": _TEXT,
                "deadline": _DURATION,
                "stages": {"type": "array", "items": _NAME},
            },
        ),
        "upstream_retention": _DURATION,
        "deletes": _words("shown", "not_shown"),
        "keep_pages": _word_or("forever", _DURATION),
        "keep_snapshots": _WHOLE,
    }


def _stream() -> Schema:
    parent = _map(
        known_keys.PARENT,
        {"stream": _NAME, "when": _PREDICATE, "on": _words("all", "changed")},
        ("stream",),
    )
    return _map(known_keys.STREAM, {"parent": parent, **_request_values(), **_stream_values()})


def _plans() -> Schema:
    request = _request_values()
    keyset = {
        **request,
        **_changes_values(),
        "time": _TEXT,
        "granularity": _DURATION,
        "bounds": _words(*Bounds),
        "settle": _word_or("none", _DURATION),
        "lookback": _word_or("none", _DURATION),
    }
    interval = {
        **keyset,
        "order": _words(*Order),
        "width": _word_or("auto", _DURATION),
        "width_min": _DURATION,
        "result_cap": _WHOLE,
    }
    cursor = {
        **request,
        **_changes_values(),
        "next": _TEXT,
        "lifetime": _DURATION,
        "identity": _map(known_keys.IDENTITY, dict.fromkeys(("get", "value", "head"), _TEXT)),
        "on_reset": _words("reread", "stop"),
    }
    snapshot = {**request, "every": _DURATION, "keep_snapshots": _WHOLE}
    return _map(
        known_keys.PLAN,
        {
            "interval": _map(known_keys.INTERVAL, interval),
            "keyset": _map(known_keys.KEYSET, keyset),
            "cursor": _map(known_keys.CURSOR, cursor),
            "snapshot": _map(known_keys.SNAPSHOT, snapshot),
            **_programs(request["headers"], request["errors"]),
        },
    )


def _programs(headers: Schema, errors: Schema) -> dict[str, Schema]:
    """The plans that are programs."""
    python = {
        **_changes_values(),
        "class": {"type": "string", "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"},
        "settings": _VALUES,
        "hang": _DURATION,
        "headers": headers,
        "errors": errors,
    }
    singer = {
        **_changes_values(),
        "command": {"type": "array", "items": _TEXT},
        "config": _VALUES,
        "environment": _VALUES,
        "catalog": _word_or("discover", _map(known_keys.CATALOG, {"file": _TEXT}, ("file",))),
        "stream": _TEXT,
        "others": _words("refuse", "ignore"),
        "state": _words("kept", "none"),
        "hang": _DURATION,
    }
    return {
        "python": _map(known_keys.PYTHON, python, ("class",)),
        "singer": _map(known_keys.SINGER, singer, ("command",)),
    }


def _mapping(known: Known, first: tuple[str, ...] = ()) -> Schema:
    named = {"gapless": {"const": 1}, "mapping": _NAME}
    values: dict[str, Schema] = {
        **{key: named[key] for key in first},
        "version": _WHOLE,
        "from": {"type": "string", "pattern": "^[^/]+/[^/]+$"},
        "table": _TEXT,
        "key": {"type": ["string", "array"]},
        "revision": {"anyOf": [_TEXT, _revision()]},
        "entity": {"anyOf": [_TEXT, _by_plan()]},
        "where": _PREDICATE,
        "deleted": _PREDICATE,
        "absent": _words("delete", "keep"),
        "columns": _columns(),
        "children": _children(),
        "events": _events(),
        "subjects": {"type": "array", "items": _TEXT},
        "incident": {"type": "object"},
        "keep": _map(known_keys.KEEP, {"quarantine": _DURATION}),
        "faults": {
            "anyOf": [
                _words("accept", "halt"),
                _map(known_keys.FAULTS, {"max": {"type": "integer", "minimum": 0}}, ("max",)),
            ]
        },
    }
    required = (*first, "version", "from", "table", "key", "revision", "columns")
    return _map(known, values, required)


def _columns() -> Schema:
    return {
        "type": "object",
        "propertyNames": {"pattern": _SQL_NAME},
        "additionalProperties": {"anyOf": [_TEXT, _column()]},
    }


def _children() -> Schema:
    child: dict[str, Schema] = {
        "path": {"anyOf": [_TEXT, _by_plan()]},
        "key": {"type": ["string", "array"]},
        "columns": _columns(),
        "table": _TEXT,
    }
    return {
        "type": "object",
        "propertyNames": {"pattern": _SQL_NAME},
        "additionalProperties": _map(known_keys.CHILD, child, ("path", "key", "columns")),
    }


def _by_plan() -> Schema:
    return _map(known_keys.PLAN, {})


def _revision() -> Schema:
    return _map(known_keys.REVISION, {"kind": _words(*RevisionKind), "type": _TEXT})


def _column() -> Schema:
    alternative = {"anyOf": [_TEXT, _map(known_keys.ALTERNATIVE, {"path": _TEXT}, ("path",))]}
    places = {"anyOf": [alternative, {"type": "array", "items": alternative}]}
    unknown = _map(known_keys.UNKNOWN_USE, {})
    # YAML's `false` is a boolean, and so is what this word is written as.
    personal = [False if one is Personal.NO else str(one) for one in Personal]
    personal.remove(str(Personal.UNDECLARED))
    return _map(
        known_keys.COLUMN,
        {
            "path": {"anyOf": [places, _by_plan()]},
            "type": _TEXT,
            "required": _FLAG,
            "values": {"type": ["array", "object"]},
            "unknown": {"anyOf": [_words(Unknown.QUARANTINE, Unknown.KEEP), unknown]},
            "pattern": _TEXT,
            "personal": {"enum": personal},
        },
        ("type",),
    )


def _events() -> Schema:
    changed = _map(known_keys.CHANGED, {"type": _TEXT, "fields": {"type": "array"}}, ("type",))
    return _map(
        known_keys.EVENTS,
        {
            "to": _map(known_keys.EVENTS_TO, {"topic": _TEXT}, ("topic",)),
            "created": _TEXT,
            "changed": {"anyOf": [_TEXT, changed]},
            "deleted": _TEXT,
        },
        ("to",),
    )
