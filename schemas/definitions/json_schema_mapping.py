"""The JSON Schema of a mapping: its keys, columns, child tables and events."""

from schemas.definitions import known_keys
from schemas.definitions.fields import Known
from schemas.definitions.json_schema_parts import (
    DURATION,
    FLAG,
    FUNCTION_PATH,
    NAME,
    PREDICATE,
    SQL_NAME,
    TEXT,
    VALUES,
    WHOLE,
    Schema,
    fixed_auth,
    map_of,
    reference_to_secret,
    words,
)
from schemas.definitions.mapping import Personal, RevisionKind, Unknown


def mapping_of(known: Known, first: tuple[str, ...] = ()) -> Schema:
    named = {"gapless": {"const": 1}, "mapping": NAME}
    values: dict[str, Schema] = {
        **{key: named[key] for key in first},
        "version": WHOLE,
        "from": {"type": "string", "pattern": "^[^/]+/[^/]+$"},
        "table": TEXT,
        "key": {"type": ["string", "array"]},
        "revision": {"anyOf": [TEXT, _revision()]},
        "entity": {"anyOf": [TEXT, _by_plan()]},
        "where": PREDICATE,
        "deleted": PREDICATE,
        "absent": words("delete", "keep"),
        "columns": _columns(),
        "children": _children(),
        "events": _events(),
        "subjects": {"type": "array", "items": TEXT},
        "incident": {"type": "object"},
        "keep": map_of(known_keys.KEEP, {"quarantine": DURATION}),
        "faults": {
            "anyOf": [
                words("accept", "halt"),
                map_of(known_keys.FAULTS, {"max": {"type": "integer", "minimum": 0}}, ("max",)),
            ]
        },
        "python": {"anyOf": [FUNCTION_PATH, _function()]},
    }
    required = (*first, "version", "from", "table", "key", "revision", "columns")
    return map_of(known, values, required)


def _function() -> Schema:
    values = {"function": FUNCTION_PATH, "hang": DURATION, "memory": TEXT}
    return map_of(known_keys.FUNCTION, values, ("function",))


def _columns() -> Schema:
    return {
        "type": "object",
        "propertyNames": {"pattern": SQL_NAME},
        "additionalProperties": {"anyOf": [TEXT, _column()]},
    }


def _children() -> Schema:
    child: dict[str, Schema] = {
        "path": {"anyOf": [TEXT, _by_plan()]},
        "key": {"type": ["string", "array"]},
        "columns": _columns(),
        "table": TEXT,
    }
    return {
        "type": "object",
        "propertyNames": {"pattern": SQL_NAME},
        "additionalProperties": map_of(known_keys.CHILD, child, ("path", "key", "columns")),
    }


def _by_plan() -> Schema:
    return map_of(known_keys.PLAN, {})


def _revision() -> Schema:
    return map_of(known_keys.REVISION, {"kind": words(*RevisionKind), "type": TEXT})


def _column() -> Schema:
    alternative = {"anyOf": [TEXT, map_of(known_keys.ALTERNATIVE, {"path": TEXT}, ("path",))]}
    places = {"anyOf": [alternative, {"type": "array", "items": alternative}]}
    unknown = map_of(known_keys.UNKNOWN_USE, {})
    # YAML's `false` is a boolean, and so is what this word is written as.
    personal = [False if one is Personal.NO else str(one) for one in Personal]
    personal.remove(str(Personal.UNDECLARED))
    return map_of(
        known_keys.COLUMN,
        {
            "path": {"anyOf": [places, _by_plan()]},
            "type": TEXT,
            "required": FLAG,
            "values": {"type": ["array", "object"]},
            "unknown": {"anyOf": [words(Unknown.QUARANTINE, Unknown.KEEP), unknown]},
            "pattern": TEXT,
            "personal": {
                "anyOf": [{"enum": personal}, map_of(known_keys.PERSONAL, {"hash": VALUES})]
            },
        },
        ("type",),
    )


def _events() -> Schema:
    changed = map_of(known_keys.CHANGED, {"type": TEXT, "fields": {"type": "array"}}, ("type",))
    return map_of(
        known_keys.EVENTS,
        {
            "to": map_of(
                known_keys.EVENTS_TO,
                {
                    "topic": TEXT,
                    "post": reference_to_secret(),
                    "auth": map_of(known_keys.EVENTS_AUTH, fixed_auth()),
                },
            ),
            "created": TEXT,
            "changed": {"anyOf": [TEXT, changed]},
            "deleted": TEXT,
        },
        ("to",),
    )
