"""Which versions of a mapping there are, and whether one may be built or brought back beside live."""

from __future__ import annotations

from apply.known_versions import Version, aside_of, live_of
from apply.replay_report import ReplayRefused
from schemas.definitions.mapping import MappingSpec


def pipeline_of(mapping: str, version: int) -> str:
    """The name under which a table beside keeps its positions."""
    return f"beside:{mapping}:{version}"


def standing(
    spec: MappingSpec, versions: list[Version], *, back: bool
) -> tuple[Version | None, Version]:
    """This version, if it is registered, and the live one. Raises ReplayRefused for what cannot be."""
    name, again = spec.name, f"gapless replay {spec.name}"
    own = next((one for one in versions if one.version == spec.version), None)
    live, aside = live_of(versions), aside_of(versions)
    if live is None:
        raise ReplayRefused(f"{name} has no live version yet: run `gapless migrate`")
    if own is not None and own.hash != spec.hash:
        raise ReplayRefused(
            f"version {spec.version} of {name} is registered with another meaning: "
            + (f"`{again} --drop` it, or " if own.state == "shadow" else "")
            + "raise `version`"
        )
    if spec.table != live.table:
        raise ReplayRefused(
            f"version {live.version} fills the table {live.table}, this one {spec.table}: a swap keeps "
            f"the name. Write `table: {live.table}`"
        )
    swapped = own is not None and own.state == "live" and aside is not None
    if swapped and aside is not None and aside.state == "kept":
        return own, live
    if back:
        if own is None or own.state != "kept":
            kept = aside.version if aside is not None and aside.state == "kept" else None
            raise ReplayRefused(
                f"no table of {name} stands beside to go back to"
                if kept is None
                else f"the table that stands beside is of version {kept}: give its definitions "
                "(--definitions), they are what goes live again"
            )
        return own, live
    if own is not None and own.state == "live":
        raise ReplayRefused(f"version {own.version} of {name} is live already: raise `version`")
    if own is not None and own.state == "kept":
        raise ReplayRefused(
            f"version {own.version} was replaced: `{again} --swap-back` brings it back"
        )
    if aside is not None and aside is not own:
        what = "is being built" if aside.state == "shadow" else "was replaced and still stands"
        raise ReplayRefused(f"version {aside.version} {what} beside: `{again} --drop` it first")
    newest = max(one.version for one in versions)
    if own is None and spec.version <= newest:
        raise ReplayRefused(f"version {newest} is registered: write `version: {newest + 1}`")
    if own is not None and own.state == "shadow" and own.version < live.version:
        raise ReplayRefused(
            f"version {live.version} went live meanwhile: `{again} --drop` this one"
        )
    if own is not None and own.state == "retired":
        raise ReplayRefused(f"version {own.version} is retired: write `version: {newest + 1}`")
    return own, live


def refuse_wrong_way(own: Version, aside: Version | None, *, back: bool) -> None:
    """This version is live: was it asked for? Raises ReplayRefused if it is what somebody wants to leave."""
    if aside is None or back == (own.version < aside.version):
        return
    if back:
        raise ReplayRefused(
            f"version {own.version} is live, and these are its definitions: to bring the table of "
            f"version {aside.version} back, give the definitions of version {aside.version} "
            "(--definitions FOLDER)"
        )
    raise ReplayRefused(
        f"version {own.version} is live already, brought back instead of version {aside.version}: "
        "raise `version`"
    )
