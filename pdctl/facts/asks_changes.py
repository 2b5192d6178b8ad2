"""Which commands to ask of a host for what changed there: kernel and drivers, Python packages, checkouts, units' life.

Each answer is split into the facts that captures know: a package or a kernel is a file with a time of its own, a
checkout is ``git``, what systemd said of a unit goes with ``systemctl show``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pdctl.facts.asks_files import Entry, read_entries
from pdctl.model.answer import Answer, Fact
from pdctl.model.ask import MEGABYTE, CommandAsk
from pdctl.model.cluster import Host, Instance

MOST_MESSAGES = 400  # of one unit
MOST_DIRTY = 200  # files of one checkout
# Packages whose version matters to a prefill/decode pair, whether they changed or not.
_MATTER = """
sglang sgl_kernel sglang_kernel sglang_router smg torch triton transformers flashinfer_python flashinfer_cubin
mooncake_transfer_engine mooncake_transfer_engine_non_cuda nixl nixl_cu12 nixl_cu13 mori deep_ep deep_gemm vllm
nvidia_nccl_cu12 nvidia_nccl_cu13 cuda_python xgrammar
"""
MATTER = frozenset(_MATTER.split())
_SYSTEM = """
r=$(uname -r); echo "kernel $r"; grep '^btime' /proc/stat
[ -d "/lib/modules/$r" ] && stat -c 'installed %Y' "/lib/modules/$r"
for m in nvidia amdgpu mlx5_core bnxt_en ib_core; do
  [ -r "/sys/module/$m/version" ] || continue
  f=$(modinfo -n "$m" 2>/dev/null) || f=
  [ -f "$f" ] && t=$(stat -L -c %Y "$f") || t=
  echo "driver $m $(cat "/sys/module/$m/version") $t"
done
exit 0
"""
# $1 the process, $2 its first word. Site packages by what is mapped into it, else beside its interpreter.
_PACKAGES = r"""
root=/proc/$1/root; [ -e "$root/" ] || { echo "$root: permission denied" >&2; exit 1; }
places=$(grep -ao '/[^ ]*/\(site\|dist\)-packages' "/proc/$1/maps" 2>/dev/null | sort -u)
case $2 in
  */bin/*) for d in "$root${2%/bin/*}"/lib/python3*/site-packages; do
    [ -d "$d" ] && places="$places
${d#"$root"}"; done;;
esac
[ -n "$places" ] || { echo "no site-packages found" >&2; exit 1; }
echo "$places" | sort -u | while read -r p; do
  [ -d "$root$p" ] && find -H "$root$p" -maxdepth 1 '(' -name '*.dist-info' -o -name '*.egg-info' ')' -printf "$3"
done
exit 0
"""
_CHECKOUT = r"""
for d in "$@"; do
  [ -d "$d" ] || d=${d%/*}
  g() { git -c safe.directory='*' -c core.fsmonitor=false --no-optional-locks -C "$d" "$@"; }
  command -v git >/dev/null || { echo "git: command not found" >&2; exit 127; }
  top=$(g rev-parse --show-toplevel 2>/dev/null) || continue
  printf '\1top\0%s\0\1head\0%s\0' "$top" "$(g log -1 '--format=%H %cI' 2>/dev/null)"
  printf '\1branch\0%s\0' "$(g symbolic-ref -q --short HEAD)"
  printf '\1moves\0%s\0' "$(g log -g -n 30 --date=unix '--format=%H %gd %gs' HEAD 2>/dev/null)"
  printf '\1dirty\0'; g status --porcelain=v1 -z --ignore-submodules=dirty || exit
done
exit 0
"""
_FORMAT = r"%T@\t%s\t%m\t%u\t%g\t%y\t%p\0"


def system_ask(subject: str, host: Host) -> CommandAsk:
    """The host's kernel and drivers, with when each was installed, and when it booted."""
    return _ask(subject, Fact.FILE, host, ("sh", "-c", _SYSTEM), shown="uname -r; cat /sys/module/nvidia/version")


def system_answers(answer: Answer) -> Iterator[Answer]:
    """Kernel, boot and drivers as files: path, time and one line each."""
    lines = [line.split() for line in (answer.body or b"").decode("utf-8", "replace").splitlines()]
    told = {words[0]: words[1] for words in lines if len(words) == 2}
    kernel = told.get("kernel", "?")
    if "btime" in told:
        yield _as_file(answer, "/proc/version", told["btime"], f"kernel {kernel}")
    if "installed" in told:
        yield _as_file(answer, f"/lib/modules/{kernel}", told["installed"], f"kernel {kernel}")
    for words in lines:
        if words[:1] == ["driver"] and len(words) >= 3:
            stamp = words[3] if len(words) > 3 else ""
            yield _as_file(answer, f"/sys/module/{words[1]}/version", stamp, f"driver {words[1]} {words[2]}")


def _as_file(answer: Answer, path: str, stamp: str, line: str) -> Answer:
    more: dict[str, object] = {"path": path}
    if stamp.isdigit():
        more["mtime"] = datetime.fromtimestamp(int(stamp), UTC).isoformat()
    return replace(answer, fact=Fact.FILE, body=f"{line}\n".encode(), more=more)


def packages_ask(instance: Instance, host: Host, pid: int, program: str) -> CommandAsk:
    """The Python packages that a process can import, with when each was installed; in its container's own files."""
    argv = ("sh", "-c", _PACKAGES, "pdctl", str(pid), program, _FORMAT)
    return _ask(instance.name, Fact.FILE, host, argv, shown=f"ls -d SITE-PACKAGES-OF-{pid}/*.dist-info", timeout=20.0)


def package_answers(answer: Answer, since: datetime) -> Iterator[Answer]:
    """Packages as files without text: those installed since, those that matter, and one row that counts them all."""
    entries = read_entries(answer.body or b"")
    for entry in entries:
        name, _ = package_of(entry.path) or ("", "")
        if entry.mtime >= since or name in MATTER:
            yield _metadata(answer, replace(entry, path=_inside(entry.path)))
    for place in dict.fromkeys(str(PurePosixPath(e.path).parent) for e in entries):
        mine = [e for e in entries if e.path.startswith(place + "/")]
        newest = max(e.mtime for e in mine)
        row = Entry(_inside(place), newest, len(mine), "", "", "", "d")
        yield replace(_metadata(answer, row), body=f"{len(mine)} packages\n".encode())


def _metadata(answer: Answer, entry: Entry) -> Answer:
    more = {"path": entry.path, "mtime": entry.mtime.isoformat(), "size": entry.size}
    return replace(answer, fact=Fact.FILE, body=None, more=more)


def _inside(path: str) -> str:
    """A path as the process itself has it: without /proc/PID/root."""
    parts = PurePosixPath(path).parts
    return str(PurePosixPath("/", *parts[4:])) if parts[1:2] == ("proc",) and parts[3:4] == ("root",) else path


def package_of(path: str) -> tuple[str, str] | None:
    """Name and version of an installed package's folder, the name as imports and wheels write it; None for others.

    >>> package_of("/v/lib/python3.11/site-packages/sgl_kernel-0.3.9.post2.dist-info")
    ('sgl_kernel', '0.3.9.post2')
    """
    folder = PurePosixPath(path)
    if folder.suffix not in (".dist-info", ".egg-info"):
        return None
    name, dash, version = folder.name.removesuffix(folder.suffix).partition("-")
    return (name.lower().replace("-", "_"), version) if dash else None


# --- checkouts -----------------------------------------------------------------------------------------------------


def checkouts_ask(subject: str, host: Host, paths: Sequence[str]) -> CommandAsk:
    """Head, moves and uncommitted changes of the checkouts that paths lie in. Nothing is written there, no hook run."""
    argv = ("sh", "-c", _CHECKOUT, "pdctl", *paths)
    return _ask(subject, Fact.GIT, host, argv, shown=f"git -C {paths[0]} status", timeout=30.0, cap=8 * MEGABYTE)


def checkout_answers(answer: Answer) -> Iterator[Answer]:
    """One ``git`` answer for each checkout, none where no path lies in one."""
    seen = set()
    for part in (answer.body or b"").split(b"\1top\0")[1:]:
        value = _checkout(part)
        if value["path"] not in seen:
            seen.add(value["path"])
            yield replace(answer, body=json.dumps(value).encode(), more={"path": value["path"]})


def _checkout(part: bytes) -> dict[str, object]:
    fields = part.split(b"\0")
    texts = [field.decode("utf-8", "replace") for field in fields]
    named = {texts[i][1:]: texts[i + 1] for i in range(1, len(texts) - 1) if texts[i][:1] == "\1"}
    head, _, committed = named.get("head", "").partition(" ")
    start = texts.index("\1dirty") + 1 if "\1dirty" in texts else len(texts)
    return {
        "path": texts[0],
        "head": head or None,
        "branch": named.get("branch") or None,
        "committed": committed or None,
        "dirty": list(_dirty(texts[start:]))[:MOST_DIRTY],
        "moves": list(_moves(named.get("moves", ""))),
    }


def _dirty(fields: Sequence[str]) -> Iterator[str]:
    """File names of ``git status --porcelain -z``: of a rename the new one, whose old one follows."""
    rows = iter(fields)
    for row in rows:
        if len(row) > 3:
            yield row[3:]
            if row[0] in "RC":
                next(rows, None)


def _moves(text: str) -> Iterator[dict[str, str]]:
    for line in text.splitlines():
        head, at, what = (*line.split(" ", 2), "", "")[:3]
        stamp = at.partition("@{")[2].rstrip("}")
        if stamp.isdigit():
            yield {"at": datetime.fromtimestamp(int(stamp), UTC).isoformat(), "head": head, "what": what}


def tracked_ask(subject: str, host: Host, top: str, paths: Sequence[str]) -> CommandAsk:
    """Which of these files the checkout at ``top`` tracks: their names, NUL after each."""
    git = ("git", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "--no-optional-locks", "-C", top)
    return _ask(subject, Fact.FILE, host, (*git, "ls-files", "-z", "--", *paths), shown=f"git -C {top} ls-files")


# --- units ---------------------------------------------------------------------------------------------------------


def unit_messages_ask(instance: Instance, host: Host, since: datetime) -> CommandAsk:
    """What systemd itself said of a unit since then: starts, ends, restarts by itself."""
    unit = instance.unit or ""
    unit = unit if "." in unit else f"{unit}.service"
    argv = (
        "journalctl", "--no-pager", "-q", "-o", "json", "-n", str(MOST_MESSAGES), f"--since=@{since.timestamp():.0f}",
        "_PID=1", f"UNIT={unit}",
    )  # fmt: skip
    shown = f"journalctl -u {unit} _PID=1 --since=@{since.timestamp():.0f}"
    return _ask(instance.name, Fact.UNIT, host, argv, shown=shown, cap=8 * MEGABYTE)


def with_messages(unit: Answer, messages: Answer) -> Answer:
    """``systemctl show`` with what systemd said, a property each: ``SystemdMessage0=@1794453000.5 Started ...``."""
    rows: list[str] = []
    for line in (messages.body or b"").splitlines():
        try:
            said = json.loads(line)
            stamp, text = int(said["__REALTIME_TIMESTAMP"]) / 1e6, said["MESSAGE"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(text, str):
            rows.append(f"SystemdMessage{len(rows)}=@{stamp:.3f} {' '.join(text.split())}\n")
    return replace(unit, body=(unit.body or b"").rstrip(b"\n") + b"\n" + "".join(rows).encode("utf-8", "replace"))


def _ask(
    subject: str, fact: Fact, host: Host, argv: tuple[str, ...], *, shown: str, cap: int = 4 * MEGABYTE,
    timeout: float = 10.0,
) -> CommandAsk:  # fmt: skip
    become = host.become is not None
    return CommandAsk(subject, fact, host.name, argv, timeout=timeout, cap=cap, become=become, shown=shown)
