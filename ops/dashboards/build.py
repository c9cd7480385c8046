"""Builds `gapless.json`: `python -m ops.dashboards.build`. A test keeps the two the same.

First the answer (what is blocked, how much of a horizon is used), then lag against horizons, then
throughput. Only stat and timeseries panels, and no variables: every panel stands for itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as values
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DynamicConfigValue,
    GridPos,
    Threshold,
    ThresholdsMode,
)

TARGET = Path(__file__).with_name("gapless.json")
_SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")
_RATE = "[2m]"
_MOST = 12  # series in a panel: of thousands of tenants only the worst can be read
_GREEN, _ORANGE, _RED = "green", "orange", "red"
# An empty panel would leave open whether nothing is blocked or nothing is known.
_NOTHING = 'label_replace(vector(0), "kind", "nothing", "", "")'
Limits = tuple[tuple[float | None, str], ...]
_ANY_IS_BAD: Limits = ((None, _GREEN), (1, _RED))
_ANY_IS_ODD: Limits = ((None, _GREEN), (1, _ORANGE))


def build() -> str:
    """The dashboard as JSON text, with a newline at its end."""
    made = (
        dashboard.Dashboard("Gapless")
        .uid("gapless")
        .description("What is blocked, and how far lag is from what can still be had")
        .tags(["gapless"])
        .timezone("utc")
        .time("now-6h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
    )
    panels = (
        *_answers(), *_horizons(), *_throughput(), *_inside(), *_polls(), *_limits_kept(), *_events(),
        *_occasions(),
    )  # fmt: skip
    for number, panel in enumerate(panels, 1):
        made = made.with_panel(panel.id(number))
    text: str = JSONEncoder(sort_keys=True, indent=2).encode(made.build())
    return f"{text}\n"


def _answers() -> list[Any]:
    """The top row: one number each, zero is good."""
    return [
        _stat("Blocked", "What waits for somebody", "sum(gapless_blocked) or vector(0)", "short",
              0, _ANY_IS_BAD),
        _stat("Not flowing", "Partition ids in any other state",
              'sum(gapless_state{state!="flowing"}) or vector(0)', "short", 4, _ANY_IS_ODD),
        _stat("Horizon used", "The worst lag divided by its horizon",
              "max(gapless_horizon_share_used_ratio)", "percentunit", 8,
              ((None, _GREEN), (0.5, _ORANGE), (0.7, _RED))).decimals(1),
        _stat("Time left", "Until something is lost, at the worst one",
              "min(gapless_horizon_time_left_seconds)", "s", 12,
              ((None, _RED), (0, _RED), (14_400, _ORANGE), (86_400, _GREEN))),
        _stat("In quarantine", "Records that somebody has to decide about",
              "sum(gapless_quarantined_records) or vector(0)", "short", 16, _ANY_IS_ODD),
        _stat("Servers away", "Kafka or Postgres cannot be asked",
              "count(gapless_server_up == 0) or vector(0)", "short", 20, _ANY_IS_BAD),
    ]  # fmt: skip


def _horizons() -> list[Any]:
    """Lag against retention, per partition id."""
    provider = (
        _series("Ingest lag against the provider's retention", "Dashed: what the provider keeps",
                "s", 0, 12)
        .min(1)
        .scale_distribution(_log_scale())
        .with_target(_query(_worst(_drawn("ingest")), "{{partition_id}}", "A"))
        .with_target(_query("min(gapless_horizon_provider_seconds)", "provider keeps", "B"))
    )  # fmt: skip
    topic = (
        _series("Apply lag against the topic's retention",
                "Configured is shown only where pages are deleted by age; observed is the age of "
                "the oldest record kept", "s", 12, 12)
        .min(1)
        .scale_distribution(_log_scale())
        .with_target(_query(_worst(_drawn("apply")), "{{partition_id}}", "A"))
        .with_target(
            _query("min(gapless_horizon_topic_configured_seconds < Inf)", "topic keeps", "B")
        )
        .with_target(
            _query("min(gapless_horizon_topic_observed_seconds)", "oldest record kept", "C")
        )
    )  # fmt: skip
    share = (
        _series("Share of the tightest horizon that is used", "Alerts above 70 %", "percentunit",
                0, 4, 16)
        .max(1)
        .thresholds(_limits(((None, "transparent"), (0.7, _RED))))
        .thresholds_style(
            common.GraphThresholdsStyleConfig().mode(values.GraphThresholdsStyleMode.LINE)
        )
        .with_target(_query(_worst("gapless_horizon_share_used_ratio"), "{{partition_id}}"))
    )  # fmt: skip
    blocked = _series("Blocked, by kind", "What waits for somebody", "short", 16, 4, 8).with_target(
        _query(f"sum by (kind) (gapless_blocked) or {_NOTHING}", "{{kind}}")
    )
    return [
        share,
        blocked,
        _dashed(provider, "provider keeps"),
        _dashed(_dashed(topic, "topic keeps"), "oldest record kept"),
    ]


def _throughput() -> list[Any]:
    """What moves."""
    return [
        _series("Pages into the log", "Durable pages per second", "pps", 0, 20, 8).with_target(
            _query(f"sum(rate(gapless_ingest_pages_total{_RATE}))", "pages")
        ),
        _series("Outcomes of records", "Per second, once per mapping", "short", 8, 20, 8)
        .stacking(common.StackingConfig().mode(values.StackingMode.NORMAL))
        .with_target(
            _query(
                f"sum by (outcome) (rate(gapless_apply_records_total{_RATE})) > 0", "{{outcome}}"
            )
        ),
        _series("Log records behind the applied offset", "", "short", 16, 20, 8).with_target(
            _query(_worst("gapless_lag_apply_records"), "{{partition_id}}")
        ),
    ]


def _inside() -> list[Any]:
    """Where time goes, and what grows."""
    # "> 0" leaves out what is no number, while nothing has happened yet.
    p95 = f"histogram_quantile(0.95, sum by (le) (rate({{}}_bucket{_RATE}))) > 0"
    slow = _series(
        "Durations", "95th percentiles, and how long a transaction is open", "s", 0, 28, 8
    )
    for letter, name, label in (
        ("A", "gapless_ingest_fetch_seconds", "request to a source"),
        ("B", "gapless_ingest_commit_seconds", "transaction of the log"),
        ("C", "gapless_ingest_persist_seconds", "page to checkpoint"),
    ):
        slow = slow.with_target(_query(p95.format(name), label, letter))
    slow = slow.with_target(
        _query("max(gapless_log_open_transaction_seconds)", "oldest open transaction", "D")
    )
    return [
        slow,
        _series("Waiting", "Marks for pages, records for their next try, events for the relay",
                "short", 8, 28, 8)
        .with_target(_query("sum(gapless_pending_marks)", "marks", "A"))
        .with_target(_query("sum(gapless_retryable_records)", "records", "B"))
        .with_target(_query("gapless_outbox_unsent_events", "events", "C")),
        _series("Memory of workers", "Resident, the largest of each kind", "bytes", 16, 28, 8)
        .with_target(
            _query('max by (job) (process_resident_memory_bytes{job=~"gapless.*"})', "{{job}}")
        ),
    ]  # fmt: skip


def _polls() -> list[Any]:
    """How long polls get on: backfills and listings."""
    names = "{{partition_id}} {{plan}}"
    return [
        _series("Share of a long poll's range", "Proven complete; listings have no range",
                "percentunit", 0, 36, 8)
        .max(1)
        .with_target(
            _query(f"bottomk({_MOST}, gapless_progress_share_ratio)", names)
        ),
        _series("Time left of long polls", "At their present speed", "s", 8, 36, 8).with_target(
            _query(_worst("gapless_progress_left_seconds"), names)
        ),
        _series("Records of long polls", "Made durable per second", "short", 16, 36, 8).with_target(
            _query(_worst("gapless_progress_records_per_second"), names)
        ),
    ]  # fmt: skip


def _limits_kept() -> list[Any]:
    """How hard providers may be asked, and whether budgets suffice."""
    return [
        _series("Throttles", "Answers per second that refused for too many requests", "short",
                0, 44, 8)
        .with_target(
            _query(f"sum by (source) (rate(gapless_ingest_throttles_total{_RATE}))", "{{source}}")
        ),
        _series("Requests allowed at once", "Per credential; falls while it is throttled", "short",
                8, 44, 8)
        .with_target(
            _query(
                f"bottomk({_MOST}, min by (source, tenant) (gapless_ingest_concurrency_limit))",
                "{{source}} {{tenant}}",
            )
        ),
        _series("Budgets", "Left when a run had ended, and the reserve that it kept", "s", 16, 44, 8)
        .min(None)
        # without a budget both are zero, which would read as one that is spent
        .with_target(
            _query(
                "min(gapless_ingest_budget_left_seconds and gapless_ingest_budget_reserve_seconds > 0)",
                "left",
            )
        )
        .with_target(_query("max(gapless_ingest_budget_reserve_seconds > 0)", "reserve", "B")),
    ]  # fmt: skip


def _events() -> list[Any]:
    """What leaves through the outbox, by lane: `topics`, or the mapping that posts."""
    rate = f"sum by (lane) (rate(gapless_relay_{{}}_events_total{_RATE})) > 0"
    return [
        _series(
            "Events out",
            "Accepted, attempts that failed, and removed after their time, per second",
            "short",
            0,
            52,
            8,
        )
        .with_target(_query(rate.format("sent"), "{{lane}}"))
        .with_target(_query(rate.format("failed"), "{{lane}} failed", "B"))
        .with_target(
            _query(f"sum(rate(gapless_relay_pruned_events_total{_RATE})) > 0", "removed", "C")
        ),
        _series("Age of the oldest event", "Not published yet", "s", 8, 52, 8).with_target(
            _query("gapless_outbox_oldest_event_seconds", "age")
        ),
        _series(
            "Lanes that wait", "1: nobody takes events there now", "short", 16, 52, 8
        ).with_target(_query("max by (lane) (gapless_relay_paused) > 0", "{{lane}}")),
    ]


def _occasions() -> list[Any]:
    """What is there at times only: replays, runs of a schedule that went wrong, stages that wait."""
    return [
        _series("Replays", "Share that is done", "percentunit", 0, 60, 8)
        .max(1)
        .with_target(_query("gapless_replay_done_ratio", "{{pipeline}}")),
        _series("Runs that went wrong", "Of schedules: overdue, or not fetched whole", "short",
                8, 60, 8)
        .with_target(_query(f"{_worst('gapless_overdue_runs')} > 0", "{{partition_id}} overdue"))
        .with_target(_query(f"{_worst('gapless_failed_runs')} > 0", "{{partition_id}} failed", "B")),
        _series("Workers of apply that wait", "For the sink, or for a function of a mapping",
                "short", 16, 60, 8)
        .with_target(_query("sum by (reason) (gapless_apply_paused)", "{{reason}}")),
    ]  # fmt: skip


def _worst(name: str) -> str:
    return f"topk({_MOST}, {name})"


def _query(expr: str, legend: str = "", ref: str = "A") -> prometheus.Dataquery:
    query = prometheus.Dataquery().datasource(_SOURCE).expr(expr).ref_id(ref)
    return query.legend_format(legend) if legend else query


def _limits(steps: Limits) -> dashboard.ThresholdsConfig:
    found = [Threshold(value=value, color=color) for value, color in steps]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(found)


def _log_scale() -> common.ScaleDistributionConfig:
    """From seconds to years in one picture."""
    return common.ScaleDistributionConfig().type(values.ScaleDistribution.LOG).log(10)


def _drawn(stage: str) -> str:
    """The lag of a stage; a logarithm has no zero, so less than a second is drawn as one."""
    return f"clamp_min(gapless_lag_{stage}_seconds, 1)"


def _stat(title: str, about: str, expr: str, unit: str, x: int, limits: Limits) -> stat.Panel:
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(_SOURCE)
        .unit(unit)
        .thresholds(_limits(limits))
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .grid_pos(GridPos(x=x, y=0, w=4, h=4))
        .with_target(_query(expr))
    )


def _series(title: str, about: str, unit: str, x: int, y: int, w: int = 12) -> timeseries.Panel:
    legend = (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(values.LegendDisplayMode.LIST)
        .placement(values.LegendPlacement.BOTTOM)
        .calcs([])
    )
    tooltip = common.VizTooltipOptions().mode(values.TooltipDisplayMode.MULTI)
    return (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(_SOURCE)
        .unit(unit)
        .min(0)
        .draw_style(values.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(8)
        .legend(legend)
        .tooltip(tooltip.sort(values.SortOrder.DESCENDING))
        .grid_pos(GridPos(x=x, y=y, w=w, h=8))
    )


def _dashed(panel: timeseries.Panel, name: str) -> timeseries.Panel:
    """A limit is drawn as one: red, dashed, not filled."""
    return panel.override_by_name(
        name,
        [
            DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": _RED}),
            DynamicConfigValue(id_val="custom.lineStyle", value={"fill": "dash", "dash": [8, 6]}),
            DynamicConfigValue(id_val="custom.fillOpacity", value=0),
        ],
    )


if __name__ == "__main__":
    TARGET.write_text(build(), "utf-8")
    sys.stdout.write(f"{TARGET}\n")
