"""The system account that PostgreSQL runs under, and what that account can reach.

PostgreSQL refuses to run as root, and an account without rights on root's home reaches neither
the installed server files nor the stack's folder. Then both live below /var/lib/gapless.
As an ordinary user nothing of this applies: everything stays where it is.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ops.stack.errors import StackError

SHARED = Path("/var/lib/gapless")
_NAME = "nobody"


@dataclass(frozen=True)
class Account:
    """A system account by number. `None` in its place means: the account we run under."""

    uid: int
    gid: int


def server_account() -> Account | None:
    """The account for a server that refuses root. Raises StackError if the system has none."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam(_NAME)
    except KeyError:
        raise StackError(
            f"PostgreSQL does not run as root, and this system has no user {_NAME!r}; "
            "create it, or run as an ordinary user"
        ) from None
    return Account(entry.pw_uid, entry.pw_gid)


def run_as(
    account: Account | None, arguments: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Runs a command to its end under that account. Raises StackError with what it wrote."""
    try:
        done = subprocess.run(
            arguments,
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )
    except OSError as fault:
        raise StackError(f"{arguments[0]} cannot be run: {fault}") from fault
    if done.returncode != 0:
        written = (done.stderr or done.stdout).strip()
        raise StackError(f"{arguments[0]} failed ({done.returncode}): {written}")


def _can(account: Account, arguments: Sequence[str]) -> bool:
    try:
        run_as(account, arguments, {})
    except StackError:
        return False
    return True


def reachable_files(
    installed: Path, folders: Sequence[str], program: str, copy_name: str, account: Account | None
) -> Path:
    """A folder with a server's files that the account can run: `installed`, or a copy made once.

    `folders`: what to copy from `installed`, side by side as there, since programs find their
    libraries by relative paths. `program`: a path below `installed`, run to find out.
    """
    if account is None or _can(account, [str(installed / program), "--version"]):
        return installed
    copy = SHARED / copy_name
    if not copy.exists():
        _shared_folder()
        fresh = SHARED / f"new-{secrets.token_hex(4)}"
        fresh.mkdir(mode=0o755)
        for name in folders:
            shutil.copytree(installed / name, fresh / name, symlinks=True)
        _open_to_all(fresh)
        try:
            fresh.rename(copy)
        except OSError:
            # Another process was quicker; its copy is the same.
            shutil.rmtree(fresh)
    if not _can(account, [str(copy / program), "--version"]):
        raise StackError(
            f"user {_NAME!r} cannot run {copy / program}: is {SHARED} on a file system mounted "
            "with noexec? Run as an ordinary user instead"
        )
    return copy


def _shared_folder() -> None:
    SHARED.mkdir(mode=0o755, parents=True, exist_ok=True)
    found = SHARED.stat()
    # Whoever could write there could exchange the programs that we run.
    if found.st_uid != 0 or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StackError(f"{SHARED} must belong to root and be writable by root alone")


def _open_to_all(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)


def private_folder(path: Path, account: Account | None) -> Path:
    """A folder that the account alone can use, at `path` if the account can get there.

    Else `path` becomes a link to one below /var/lib/gapless. Returns where it really is.
    Raises StackError if it belongs to somebody else.
    """
    owner = account.uid if account else os.geteuid()
    if not path.exists():
        path.unlink(missing_ok=True)
        path.mkdir(mode=0o700, parents=True)
        if account is not None:
            os.chown(path, account.uid, account.gid)
            if not _can(account, ["/bin/sh", "-c", 'test -w "$1"', "sh", str(path)]):
                path.rmdir()
                path.symlink_to(_elsewhere(account))
    real = path.resolve()
    if real.stat().st_uid != owner:
        raise StackError(
            f"{path} belongs to user number {real.stat().st_uid}, this stack needs {owner}; "
            "run as the same user as before, or remove the folder"
        )
    return real


def _elsewhere(account: Account) -> Path:
    _shared_folder()
    place = SHARED / f"data-{secrets.token_hex(8)}"
    place.mkdir(mode=0o700)
    os.chown(place, account.uid, account.gid)
    return place


def remove_private_folder(path: Path) -> None:
    """Removes what `private_folder` made, wherever it is. Fine if there is nothing."""
    real = path.resolve()
    if path.is_symlink():
        path.unlink()
    if real.exists():
        shutil.rmtree(real)
