"""Engines that span several hosts: each further node as an instance of its own, for what is done to hosts.

Only the first node serves HTTP and answers for the whole; the others have a process, a unit and a script, and nothing
to ask (SGLang: ``--nnodes``, ``--node-rank``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pdctl.model.cluster import Cluster, Instance


def with_nodes(cluster: Cluster) -> Cluster:
    """The cluster in which every further node is an instance that is part of its engine, right after it."""
    return replace(cluster, instances=tuple(_expanded(cluster.instances)))


def leaders(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """Those that are no further node of another."""
    return tuple(i for i in instances if i.part_of is None)


def engine_of(instance: Instance) -> str:
    """The name of the engine that an instance is or is part of."""
    return instance.part_of or instance.name


def _expanded(instances: Iterable[Instance]) -> Iterator[Instance]:
    for instance in instances:
        yield instance
        for host in instance.nodes:
            yield Instance(
                f"{instance.name}@{host}",
                instance.role,
                host=host,
                unit=instance.unit,
                script=instance.script,
                log=instance.log,
                engine=instance.engine,
                restart_command=instance.restart_command,
                part_of=instance.name,
            )
