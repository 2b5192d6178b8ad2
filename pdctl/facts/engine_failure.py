"""Engine records about requests and peers that failed: bootstrap, transfer, handshake, sessions, heartbeats.

Wording of disaggregation/{prefill,decode}.py, common/conn.py and mooncake/conn.py, releases 0.4.9 to 0.5.23.
``words["peer"]`` is always the other side's address as printed, ``words["state"]`` the name of a KVPoll state.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from pdctl.facts.log_lines import Record
from pdctl.facts.log_rule import Rule, event, split, words_of
from pdctl.model.events import Event, Kind

RID = re.compile(r"""\brid=['"]?(?P<rid>[^'",)\s]+)""")
_RID_OF_ROOM = re.compile(r"Request (?P<rid>\S+) \(bootstrap_room=")
ROOM = re.compile(r"(?:\bbootstrap_room=|\b[Rr]oom[ =])(?P<room>\d+)")
_RANK = re.compile(r"for request rank=(?P<rank>\d+)")
_REASON = re.compile(r"with exception (?:KVTransferError\([^)]*\): )?(?P<reason>.+)$", re.S)
_TIMED_OUT = re.compile(r"timed out after (?P<timeout_s>\d+(?:\.\d+)?)\s?s(?: in KVPoll\.(?P<state>\w+))?")
_PEER = re.compile(
    r"(?:mooncake session|bootstrap_addr:|reconnect to|parallel info from) (?P<peer>(?!bootstrap(?:_addr)?:)\S+?)"
    r"(?:\.\.\.|[),]|\s|$)"
)
_AFFECTED = re.compile(r"(?P<affected>\d+) requests affected")
_ATTEMPT = re.compile(r"attempt (?P<attempt>\d+)/(?P<attempts>\d+)|after (?P<tried>\d+) (?:attempts|retries)")
_COLON_REASON = re.compile(r"(?:failed|bootstrap|bootstrap server|dp_rank|server info|room \d+): (?P<reason>.+)$", re.S)
_SESSION = re.compile(r"Session (?P<peer>\S+) (?P<end>failed\.|recovered via probe)")
_SESSION_KINDS = {"failed.": Kind.SESSION_FAILED, "recovered via probe": Kind.SESSION_RECOVERED}
_THREAD_CAUSE = re.compile(r"failed because of (?P<reason>.*?)\. Prefill instance with bootstrap_port", re.S)


def read_failure(kind: Kind, record: Record) -> Event:
    """One rank's word that a request failed: ``rid``, ``room``, ``reason``, and where it tells them ``state``,
    ``timeout_s``, ``peer``. Every rank of an engine may write its own line about one room."""
    found: dict[str, str] = {}
    for pattern in (RID, ROOM, _RANK, _REASON, _TIMED_OUT, _PEER):
        found |= words_of(pattern, record.message)
    return event(kind, record, *split(found, ("rank", "timeout_s")))


def read_peer_trouble(kind: Kind, record: Record) -> Event:
    """Trouble with the other side as a whole: ``peer``, ``reason``, ``affected`` requests, ``attempt``/``attempts``."""
    found: dict[str, str] = {}
    for pattern in (_PEER, _AFFECTED, _ATTEMPT, _COLON_REASON):
        found |= words_of(pattern, record.message)
    if (tried := found.pop("tried", None)) is not None:
        found["attempts"] = tried
    return event(kind, record, *split(found, ("affected", "attempt", "attempts")))


def read_room_trouble(kind: Kind, record: Record) -> Event:
    """Trouble with one request that is no failure line of its own: ``room``, ``rid``, ``timeout_s``, ``reason``."""
    found: dict[str, str] = {}
    for pattern in (_RID_OF_ROOM, ROOM, _TIMED_OUT, _COLON_REASON, _THREAD_CAUSE):
        found |= words_of(pattern, record.message)
    return event(kind, record, *split(found, ("timeout_s",)))


def read_session(record: Record) -> Event:
    """A Mooncake session (the decode's address and port) given up, or taken back by a probe (0.5.23)."""
    found = words_of(_SESSION, record.message)
    kind = _SESSION_KINDS.get(found.pop("end", ""), Kind.OTHER)
    return event(kind, record, None, found)


def read_hint(record: Record) -> Event:
    """The advice about a timeout that an engine logs once in its life, however many requests time out after it."""
    state = "Bootstrapping" if "when bootstrapping" in record.message else "WaitingForInput"
    return event(Kind.TIMEOUT_HINT, record, None, {"state": state})


def _rules(kind: Kind, read: Callable[[Kind, Record], Event], *starts: str) -> list[Rule]:
    return [Rule(start, kind, partial(read, kind)) for start in starts]


FAILURES = (
    *_rules(Kind.BOOTSTRAP_FAILED, read_failure, "Prefill bootstrap failed for request"),
    *_rules(Kind.TRANSFER_FAILED, read_failure, "Prefill transfer failed for request"),
    *_rules(Kind.HANDSHAKE_FAILED, read_failure, "Decode handshake failed for request"),
    *_rules(Kind.DECODE_TRANSFER_FAILED, read_failure, "Decode transfer failed for request"),
)
PEERS = (
    *_rules(
        Kind.PREFILL_INFO_FAILED,
        read_peer_trouble,
        "Could not fetch prefill parallel info",
        "Error fetching prefill ",  # "info", "parallel info", "server info" as the releases go
        "Failed to get prefill server info",
        "Failed to fetch prefill server info",
    ),
    *_rules(
        Kind.REGISTER_FAILED,
        read_peer_trouble,
        "Prefill register attempt",
        "Prefill instance failed to register",
        "Prefill instance failed to connect to bootstrap server",
        "Prefill Failed to ",  # "connect", "register to bootstrap server": 0.4.6
        "Failed to register prefill dp_rank",
    ),
    *_rules(Kind.RECONNECT, read_peer_trouble, "Attempting to reconnect to"),
    *_rules(Kind.LOST_PREFILL, read_peer_trouble, "Lost connection with prefill instance"),
    *_rules(Kind.DEFERRED_RELEASE_TIMEOUT, read_room_trouble, "Deferred KV release for room"),
    *_rules(Kind.METADATA_CORRUPT, read_room_trouble, "Metadata corruption detected", "Context corruption detected"),
    *_rules(
        Kind.TRANSFER_THREAD_FAILED,
        read_room_trouble,
        "Transfer thread failed because of",
        "NIXL transport error for room",
        "Unexpected transfer worker error for room",
    ),
    Rule("Some requests timed out when bootstrapping", Kind.TIMEOUT_HINT, read_hint),
    Rule("Some requests fail to receive KV Cache transfer done", Kind.TIMEOUT_HINT, read_hint),
)
SESSIONS = (Rule("Session ", Kind.SESSION_FAILED, read_session),)
