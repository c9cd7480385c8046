"""The definitions that come with Gapless, and their copies for a user's folder."""

from __future__ import annotations

from importlib.resources import files as resources

from ops.scaffold.files import SOURCE_SCHEMA, with_schema


def shipped() -> dict[str, str]:
    """The text of every shipped definition by the name of its source."""
    found = (one for one in (resources("ingest") / "sources").iterdir() if one.is_file())
    return {
        one.name.removesuffix(".yaml"): one.read_text("utf-8")
        for one in sorted(found, key=lambda one: one.name)
        if one.name.endswith(".yaml")
    }


def title(text: str) -> str:
    """What a definition is about: its first line."""
    return text.splitlines()[0].removeprefix("# ").rstrip(".")


def secrets_of(text: str) -> list[str]:
    """The environment variables that a definition reads, in the order of the file."""
    names = []
    for part in text.split("{env: ")[1:]:
        name = part.split("}")[0].strip()
        if name not in names:
            names.append(name)
    return names


def copied(name: str, text: str) -> dict[str, str]:
    """A shipped definition as it belongs into a folder of definitions."""
    return {f"sources/{name}.yaml": with_schema(text, SOURCE_SCHEMA)}
