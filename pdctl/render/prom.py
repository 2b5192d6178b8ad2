"""A check's outcome as node_exporter's textfile collector reads it. The only importer of prometheus-client.

Every series carries the cluster, so that several clusters' files can stand in one folder. No sample has a timestamp:
the collector refuses a file in which one has. That a check no longer runs or no longer sees shows in its age:

    time() - pdctl_check_last_success_timestamp_seconds > 300
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from pdctl import __version__
from pdctl.exits import OF_STATUS
from pdctl.model.checkrun import CheckRun
from pdctl.model.finding import InstanceReport
from pdctl.render.escape import mask, safe


def prom_text(run: CheckRun) -> str:
    """The text file's content."""
    registry = CollectorRegistry()
    _run(registry, run)
    _findings(registry, run)
    _instances(registry, run)
    return generate_latest(registry).decode("utf-8")


def _run(registry: CollectorRegistry, run: CheckRun) -> None:
    cluster = _label(run.report.cluster)
    values: tuple[tuple[str, str, float | None], ...] = (
        ("check_status", "Of the last check: 0 ok, 1 warning, 2 critical, 3 unknown.", OF_STATUS[run.report.status]),
        ("check_duration_seconds", "How long the last check took.", run.took_s),
        ("check_last_run_timestamp_seconds", "When the last check ended.", run.ended.timestamp()),
        (
            "check_last_success_timestamp_seconds",
            "When a check could last see all it asked, whatever it found.",
            run.last_success.timestamp() if run.last_success else None,
        ),
        ("check_unchecked", "How many things the last check did not judge.", len(run.report.unchecked)),
        ("check_earlier_runs", "How many earlier runs the last check was judged with.", run.runs),
    )
    for name, text, value in values:
        if value is not None:
            Gauge(f"pdctl_{name}", text, ["cluster"], registry=registry).labels(cluster).set(value)
    info = Gauge("pdctl_info", "The version of pdctl that checked.", ["cluster", "version"], registry=registry)
    info.labels(cluster, __version__).set(1)
    stages = Gauge("pdctl_check_stage_ran", "Whether a stage was run.", ["cluster", "stage"], registry=registry)
    for stage in run.stages:
        stages.labels(cluster, stage.name).set(int(stage.ran))


def _findings(registry: CollectorRegistry, run: CheckRun) -> None:
    labels = ["cluster", "name", "severity", "subject", "muted"]
    gauge = Gauge("pdctl_finding", "A finding of the last check; there is none for what is well.", labels,
                  registry=registry)  # fmt: skip
    for finding in run.report.findings:
        gauge.labels(
            _label(run.report.cluster), _label(finding.name), finding.severity.value, _label(finding.subject),
            "false" if finding.muted is None else "true",
        ).set(1)  # fmt: skip


def _instances(registry: CollectorRegistry, run: CheckRun) -> None:
    """Whether each instance answered, and the newest readings of its queues; what was not read has no series."""
    cluster = _label(run.report.cluster)
    up = Gauge("pdctl_instance_up", "Whether an instance answered.", ["cluster", "instance", "role"], registry=registry)
    reading = Gauge(
        "pdctl_reading", "The newest reading of an instance's gauge.", ["cluster", "instance", "gauge"],
        registry=registry,
    )  # fmt: skip
    for instance in run.report.instances:
        name = _label(instance.name)
        if instance.reachable is not None:
            up.labels(cluster, name, _label(str(instance.role))).set(int(instance.reachable))
        for key, value in _read(instance):
            reading.labels(cluster, name, _label(key)).set(value)


def _read(instance: InstanceReport) -> list[tuple[str, float]]:
    if not instance.reachable:
        return []
    return [(key, float(value)) for key, value in instance.details.items() if isinstance(value, int | float)]


def _label(text: str) -> str:
    return safe(mask(text))
