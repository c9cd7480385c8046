"""Reads `pages`: how the next page is asked for follows from the placeholders of the request."""

from collections.abc import Collection
from typing import Final

from schemas.definitions import known_keys
from schemas.definitions.fields import Fields
from schemas.definitions.paths import Path, Root, parse_answer_path
from schemas.definitions.predicates import Predicate
from schemas.definitions.problems import NotationError
from schemas.definitions.read_lengths import duration_s
from schemas.definitions.read_predicate import read_predicate
from schemas.definitions.reader import Reader
from schemas.definitions.source import COUNTED, End, PagesSpec, Turn
from schemas.definitions.tree import ListNode, MapNode, Node, ScalarNode

_TURNS: Final = {
    "token": Turn.TOKEN, "page": Turn.PAGE, "offset": Turn.OFFSET, "last.id": Turn.LAST_ID
}  # fmt: skip
_PLACES: Final = {Turn.LAST_ID: "last.id", Turn.CURSOR: "cursor"}
_LINK_HEADER: Final = Path(Root.HEADER, ("link",), "header.link")


def body_path(text: str) -> Path:
    """A path into the body of an answer."""
    path = parse_answer_path(text)
    if path.root is not Root.BODY:
        raise NotationError(f'"{text}" is not in the body', f"Write `body.{text.split('.')[-1]}`.")
    return path


SIZE_DEFAULT = 500
"""Records asked for at once where `{size}` is sent and nobody says how many, or fewer if the server
gives no more: large enough that a request costs little, small enough to be stored soon."""


def header_or_body_path(text: str) -> Path:
    """A path into a header or the body of an answer."""
    path = parse_answer_path(text)
    if path.root is Root.STATUS:
        raise NotationError("the status is not read here", "Write `header.NAME` or `body.PATH`.")
    return path


def read_pages(
    reader: Reader, node: Node, sent: Collection[str], plan: str, params: MapNode | None
) -> PagesSpec | None:
    """What turns the pages of one request; `sent` are the placeholders that the request holds."""
    if isinstance(node, ScalarNode) and node.value == "none":
        if plan == "keyset":
            raise reader.refuse(
                node,
                "a keyset reads on behind the last record, and `pages: none` has no second page",
                "Write `pages: {size: 100}` or what the server gives at once.",
            )
        asked = sorted(name for name in sent if name in _TURNS)
        if asked:
            raise reader.refuse(
                node,
                f"{{{asked[0]}}} is sent, but `pages: none` has no second page",
                "Describe the pages.",
            )
        return None
    fields = Fields(reader, reader.map(node, "pages"), "pages", known_keys.PAGES)
    next_path = fields.get("next", reader.parsed(header_or_body_path), None)
    default = "link" if next_path == _LINK_HEADER else "token"
    next_is = fields.get("next_is", reader.choice("token", "link"), default)
    turn = _turn(fields, sent, plan, next_path, next_is, params)
    end = fields.get("end", lambda one: _end(reader, one), End.NO_NEXT if next_path else End.EMPTY)
    total = fields.get("total", reader.parsed(body_path), None)
    if turn is Turn.KEYSET and fields.has("total"):
        reader.note(
            fields.entry("total"),
            "a total counts anew behind every record, so it says nothing of a keyset's walk",
            "Take it out, or write `pages: {total: null}` in the plan.",
        )
    _check_end(fields, end, turn, next_path, total)
    if fields.has("size") and "size" not in sent:
        reader.warn(
            fields.entry("size"),
            "a size is given but never sent",
            'Add a param such as `limit: "{size}"`.',
        )
    cap = fields.get("cap", reader.at_least(1), None)
    default_size = min(SIZE_DEFAULT, cap or SIZE_DEFAULT) if "size" in sent else None
    return PagesSpec(
        turn=turn,
        end=end,
        next=next_path,
        size=fields.get("size", reader.at_least(1), default_size),
        cap=cap,
        first=_first(fields, turn),
        total=total,
        stable=fields.get("stable", reader.boolean, False),
        token_lifetime_s=fields.get("token_lifetime", reader.parsed(duration_s), None),
    )


def _turn(
    fields: Fields,
    sent: Collection[str],
    plan: str,
    next_path: Path | None,
    next_is: str,
    params: MapNode | None,
) -> Turn:
    reader = fields.reader
    turns = [turn for name, turn in _TURNS.items() if name in sent]
    if plan == "keyset":
        if turns or next_path is not None:
            other = f"{{{turns[0].value}}}" if turns else "`next`"
            reader.note(
                fields.node,
                f"{{after.time}} and {{after.id}} turn the pages of a keyset, {other} does too",
                "Take it out of this plan; a null removes what stands further out.",
            )
        return Turn.KEYSET
    if next_path is not None and next_is == "link":
        if turns:
            reader.note(
                fields.entry("next"),
                f"both a link and {{{turns[0].value}}} turn the pages",
                "Keep one.",
            )
        return Turn.LINK
    if next_path is not None and Turn.TOKEN not in turns:
        where = f" (line {params.line - 1})" if params is not None and params.line > 1 else ""
        reader.note(
            fields.entry("next"),
            "a token is read but never sent: page 2 would be page 1",
            f'Add to `params`{where} what the API calls it, e.g. `page_token: "{{token}}"`.',
        )
        return Turn.TOKEN
    if next_path is None and Turn.TOKEN in turns:
        reader.note(
            fields.node,
            "{token} is sent but never read",
            "Add `next: body.PATH` or `next: header.NAME`.",
        )
        return Turn.TOKEN
    if len(turns) > 1:
        names = " and ".join(f"{{{name}}}" for name in _TURNS if name in sent)
        reader.note(fields.node, f"{names} both turn the pages", "Keep one of them.")
    if turns:
        return turns[0]
    if plan == "cursor" and "cursor" in sent:
        return Turn.CURSOR
    reader.note(
        fields.node,
        "nothing asks for page 2",
        "Send {token}, {page}, {offset} or {last.id}, or write `next: header.link`; write "
        "`pages: none` if one answer is all.",
    )
    return Turn.TOKEN


def _end(reader: Reader, node: Node) -> End | Predicate:
    if isinstance(node, MapNode | ListNode):
        return read_predicate(reader, node, parse_answer_path)
    return End(reader.choice(*(end.value for end in End))(node))


def _check_end(
    fields: Fields, end: End | Predicate, turn: Turn, next_path: Path | None, total: Path | None
) -> None:
    at = fields.entry("end") if fields.has("end") else fields.node
    note = fields.reader.note
    if end is End.NO_NEXT and next_path is None and not fields.has("next"):
        note(
            at,
            "the pages end without a next, but no next is read",
            "Add `next:`, or write `end: empty`.",
        )
    if end is End.TOTAL and total is None and not fields.has("total"):
        note(at, "the pages end at a total that is never read", "Add `total: body.PATH`.")
    if end is End.TOTAL and turn not in (*COUNTED, Turn.KEYSET):
        note(
            at,
            f"behind {{{_PLACES[turn]}}} a total may count what is left, or a record twice: the pages"
            " would end too early",
            "Write `end: empty`; or `end: nothing_new` if the answer repeats the last record."
            if turn is Turn.LAST_ID
            else "Write `end: empty`.",
        )
    if end is End.NOTHING_NEW and turn not in (Turn.LAST_ID, Turn.KEYSET):
        note(at, "`nothing_new` is for listings asked with {last.id}", "Write `end: empty`.")


def _first(fields: Fields, turn: Turn) -> int | None:
    defaults = {Turn.PAGE: 1, Turn.OFFSET: 0}
    if turn not in defaults and fields.has("first"):
        fields.reader.note(
            fields.entry("first"),
            "`first` counts pages or offsets, and neither is sent",
            "Send {page} or {offset}.",
        )
    return fields.get("first", fields.reader.at_least(0), defaults.get(turn))
