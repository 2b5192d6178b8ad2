"""The script of an instance and the other script files that were read with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo

from pdctl.checks.backups import Backup, backups_of, is_backup_of
from pdctl.model.answer import Fact
from pdctl.model.cluster import Cluster
from pdctl.model.host import ScriptFile
from pdctl.model.window import At, Window


@dataclass(frozen=True, slots=True, eq=False)
class Scripts:
    """The newest reading of each file: the script that is meant, and its backups, oldest first."""

    main: At[ScriptFile]
    backups: tuple[Backup, ...]
    files: dict[str, At[ScriptFile]]


def scripts_of(window: Window, cluster: Cluster, subject: str, zone: tzinfo | None = None) -> Scripts | None:
    """None where no script of the instance was read. ``zone``: its host's, in which backups' names are meant."""
    files = {at.value.path: at for at in window.seen(subject, Fact.SCRIPT, ScriptFile)}
    main = main_of(files, cluster, subject)
    if main is None:
        return None
    return Scripts(main, backups_of(main.value, (at.value for at in files.values()), zone), files)


def main_of(files: dict[str, At[ScriptFile]], cluster: Cluster, subject: str) -> At[ScriptFile] | None:
    """The inventory's script; else the file of which others are backups and which is none itself."""
    instance = cluster.instance(subject)
    if instance is not None and instance.script in files:
        return files[instance.script]
    own = [path for path in files if not any(is_backup_of(other, path) for other in files)]
    starting = [path for path in own if files[path].value.launcher is not None]
    chosen = starting or own
    if not chosen:
        return None
    most = max(chosen, key=lambda path: sum(is_backup_of(path, other) for other in files))
    return files[most]
