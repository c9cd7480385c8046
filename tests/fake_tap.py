"""A Singer tap with numbered records, for tests; its own program, which imports none of the product.

`--config`: `records` there are, `state_every` so many a STATE, `ends`: without False also a last
one, `stream`, `wait_s` before each record, `bytes` of filling. `discovers`: False for a tap that
cannot. `faults`: {number: what to do before that record}, each only once unless `again`, with
traces in the folder `traces`. `log`: a file that gets a line for each run, and one for its end.
Beside that `--state`, `--catalog` and `--discover`, as the specification says.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "updated_at": {"type": ["null", "string"], "format": "date-time"},
        "Some Name": {"type": "string"},
        "tags": {"type": "array"},
    },
}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def state(done: int, filling: int = 0) -> None:
    say({"type": "STATE", "value": {"done": done, "filling": "s" * filling}})


def record(stream: str, number: int, filling: int = 0) -> None:
    text = f"record {number} {'x' * filling}"
    say({"type": "RECORD", "stream": stream, "record": {"id": number, "text": text}})


def misbehave(what: str, config: dict[str, Any], number: int) -> None:
    """One fault, named by a word and perhaps an argument behind a colon."""
    word, _, argument = what.partition(":")
    if word == "exit":
        sys.exit(int(argument))
    elif word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "hang":
        Path(config["traces"], "hanging").touch()
        time.sleep(3600)
    elif word == "garbage":
        sys.stdout.write(argument + "\n")
    elif word == "half":
        sys.stdout.write('{"type": "RECORD", "stream": "numbers", "record": {"id": ')
        sys.stdout.flush()
        sys.exit(int(argument))
    elif word == "flood":
        for _ in range(int(argument)):
            sys.stderr.write("noise " * 2_000 + "\n")
    elif word == "long":
        record(config["stream"], number, int(argument))
    elif word == "other":
        record(argument, number)
    elif word == "big_state":
        state(number, int(argument))
    elif word == "leak":
        say({"type": "STATE", "value": {"key": config["key"]}})
    elif word == "say":
        say(json.loads(argument))
    elif word == "child":
        # Something that the tap leaves behind: it ignores SIGTERM and leaves the group.
        code = "import os,signal,time;signal.signal(15,signal.SIG_IGN);os.setsid();"
        code += f"open({argument!r},'w').write(str(os.getpid()));time.sleep(3600)"
        subprocess.Popen([sys.executable, "-c", code])
        while not Path(argument).exists() or not Path(argument).read_text():
            time.sleep(0.01)
    else:
        raise SystemExit(f"no fault {what}")


def due(config: dict[str, Any], number: int) -> str | None:
    what = config.get("faults", {}).get(str(number))
    if what is None:
        return None
    trace = Path(config["traces"], f"fault-{number}")
    if trace.exists() and not config.get("again"):
        return None
    trace.touch()
    return str(what)


def discover(stream: str) -> None:
    entry = {"tap_stream_id": stream, "stream": stream, "schema": SCHEMA}
    told = {"table-key-properties": ["id"], "valid-replication-keys": ["updated_at"]}
    metadata = [{"breadcrumb": [], "metadata": {"inclusion": "available", **told}}]
    other = {"tap_stream_id": "letters", "stream": "letters", "schema": {}, "metadata": []}
    print(json.dumps({"streams": [other, {**entry, "metadata": metadata}]}))


def note(config: dict[str, Any], line: dict[str, Any]) -> None:
    if "log" in config:
        with Path(config["log"]).open("a") as log:
            log.write(json.dumps(line) + "\n")


def selected(catalog: str | None) -> list[str]:
    if catalog is None:
        return []
    streams = json.loads(Path(catalog).read_text())["streams"]
    return [str(one["stream"]) for one in streams if one["selected"]]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    for option in ("--state", "--catalog"):
        parser.add_argument(option)
    parser.add_argument("--discover", action="store_true")
    given = parser.parse_args()
    config = json.loads(Path(given.config).read_text())
    stream = config.setdefault("stream", "numbers")
    if given.discover:
        if not config.get("discovers", True):
            sys.exit("there is no discovery here")
        discover(stream)
        return
    first = json.loads(Path(given.state).read_text()).get("done", 0) if given.state else 0
    run = {"from": first, "selected": selected(given.catalog), "config": config}
    run |= {"environment": sorted(os.environ), "pid": os.getpid(), "folder": os.getcwd()}
    note(config, {**run, "began": time.monotonic()})
    say({"type": "SCHEMA", "stream": stream, "schema": SCHEMA, "key_properties": ["id"],
         "bookmark_properties": ["updated_at"]})  # fmt: skip
    every, last = config.get("state_every", 1), config["records"]
    for number in range(first, last):
        what = due(config, number)
        if what is not None:
            misbehave(what, config, number)
        time.sleep(config.get("wait_s", 0))
        record(stream, number, config.get("bytes", 0))
        if (number + 1) % every == 0:
            state(number + 1)
    what = due(config, last)
    if what is not None:
        misbehave(what, config, last)
    if config.get("ends", True):
        state(last)
    note(config, {"pid": os.getpid(), "ended": time.monotonic()})


if __name__ == "__main__":
    main()
