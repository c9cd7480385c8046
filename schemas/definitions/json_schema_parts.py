"""What the JSON Schemas of sources and mappings are made of: maps, words, references, texts."""

from collections.abc import Mapping
from typing import Any, Final

from schemas.definitions import known_keys
from schemas.definitions.fields import Known
from schemas.definitions.secrets import KINDS

Schema = dict[str, Any]
ANY: Final[Schema] = {}
NAME: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_-]{0,62}$"}
SQL_NAME: Final = "^[a-z][a-z0-9_]{0,62}$"
TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
DURATION: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,15}(us|ms|s|m|h|d)$"}
RATE: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,9}/(s|m|h)$"}
FUNCTION_PATH: Final[Schema] = {"type": "string", "pattern": r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"}
VALUES: Final[Schema] = {"type": ["object", "null"]}
PREDICATE: Final[Schema] = {"type": ["object", "array"]}


def map_of(known: Known, values: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """A map with the keys of a table and no others; a null is as if the key were not there."""
    alien = set(values) - set(known.keys)
    if alien:
        raise ValueError(f"the table does not have {', '.join(sorted(alien))}")
    properties = {
        key: ANY if not values.get(key) else {"anyOf": [values[key], {"type": "null"}]}
        for key in known.keys
    }
    found: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**found, "required": list(required)} if required else found


def words(*words: str) -> Schema:
    return {"enum": [str(word) for word in words]}


def word_or(word: str, other: Schema) -> Schema:
    return {"anyOf": [words(word), other]}


def named_by(value: Schema) -> Schema:
    """A map of names that the user gives; a stream may be empty, then all stands further out."""
    either = {"anyOf": [value, {"type": "null"}]}
    return {"type": "object", "propertyNames": NAME, "additionalProperties": either}


def reference_to_secret() -> Schema:
    one_of = dict.fromkeys(KINDS, ANY)
    return {
        "type": ["object", "string"],
        "properties": one_of,
        "additionalProperties": False,
        "maxProperties": 1,
    }


def fixed_auth() -> dict[str, Schema]:
    """The ways to authenticate that need no request of their own."""
    reference = reference_to_secret()
    return {
        "bearer": reference,
        "basic": map_of(known_keys.BASIC, {"password": reference}),
        "api_key": map_of(known_keys.API_KEY, {"header": TEXT, "param": TEXT, "value": reference}),
    }
