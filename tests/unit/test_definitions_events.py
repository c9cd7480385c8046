"""Events that are posted: where to, with what proof, and what of it is part of the mapping's hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.definitions.mapping import EventsSpec, MappingSpec, PostSpec
from schemas.definitions.secrets import Reference
from schemas.definitions.source import ApiKeyAuth, BasicAuth, BearerAuth
from tests.unit.definition_files import ORDERS, SHOP, changed, load, messages


def mapping(folder: Path, to: str, created: str = "order.opened") -> MappingSpec:
    text = changed(ORDERS, ("key: id", f"key: id\nevents: {{to: {to}, created: {created}}}"))
    found = load(folder, SHOP, text)
    assert not found.errors, messages(found)
    return found.mappings["shop_orders"]


def events(folder: Path, to: str) -> EventsSpec:
    found = mapping(folder, to).events
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("to", "expected"),
    [
        (
            "{post: 'https://hooks.shop.example:8443/a'}",
            PostSpec("https://hooks.shop.example:8443/a"),
        ),
        ("{post: {env: HOOK}}", PostSpec(Reference("env", "HOOK"))),
        (
            "{post: 'http://h', auth: {bearer: {file: token}}}",
            PostSpec("http://h", BearerAuth(Reference("file", "token"))),
        ),
        (
            "{post: 'http://h', auth: {basic: {user: ann, password: {env: P}}}}",
            PostSpec("http://h", BasicAuth("ann", Reference("env", "P"))),
        ),
        (
            "{post: 'http://h', auth: {api_key: {param: key, value: {env: K}}}}",
            PostSpec("http://h", ApiKeyAuth("param", "key", Reference("env", "K"))),
        ),
    ],
)
def test_events_are_posted_there(tmp_path: Path, to: str, expected: PostSpec) -> None:
    found = events(tmp_path, to)
    assert (found.topic, found.post) == (None, expected)


def test_a_topic_is_no_receiver(tmp_path: Path) -> None:
    found = events(tmp_path, "{topic: changes}")
    assert (found.topic, found.post) == ("changes", None)


def test_a_receiver_that_moved_needs_no_new_version(tmp_path: Path) -> None:
    here = mapping(tmp_path, "{post: 'http://here'}").hash
    assert mapping(tmp_path, "{post: {env: HOOK}, auth: {bearer: {env: T}}}").hash == here
    assert mapping(tmp_path, "{post: 'http://here'}", "order.made").hash != here
    assert mapping(tmp_path, "{topic: t}").hash != here


@pytest.mark.parametrize(
    "to",
    [
        "{post: 'https://ann:s3cret-word@hooks.example'}",
        "{post: 'https://hooks.example/a?key=s3cret-word'}",
        "{post: 'http://h', auth: {bearer: s3cret-word}}",
        "{post: 'http://h', auth: {basic: {user: ann, password: s3cret-word}}}",
        "{post: 'http://h', auth: {api_key: {header: X-Key, value: s3cret-word}}}",
    ],
)
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(tmp_path: Path, to: str) -> None:
    text = changed(ORDERS, ("key: id", f"key: id\nevents: {{to: {to}, created: c}}"))
    found = load(tmp_path, SHOP, text)
    assert found.mappings == {}
    said = "\n".join(messages(found))
    assert "events" in said
    assert "s3cret-word" not in said
