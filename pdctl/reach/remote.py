"""How a command is wrapped for a host that is reached through a login shell, and how it is ended there.

sshd hands the line to the user's login shell, whatever that is and whatever its start-up files print. The line only
makes that shell become /bin/sh, which says which process it is and then runs the words:

    noise of start-up files            (dropped)
    MARK 4711                          the process, which leads its group
    the command's own output

``timeout`` keeps watch on the host itself, so that the command ends even if nobody is there any more to end it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from pdctl.reach.command import MORE_PATH, SUDO, shell_line

# $1 the mark, $2 whole seconds the command may take at most, then the words. ``exec timeout`` keeps the process number
# and makes it the leader of a group that holds everything below; the inner sh turns death by signal n into 128 + n.
_WRAP = (
    f"LC_ALL=C; PATH=$PATH:{MORE_PATH}; export LC_ALL PATH; m=$1; n=$2; shift 2; "
    'echo "$m $$"; echo "$m $$" >&2; '
    "if command -v timeout >/dev/null 2>&1; then "
    """exec timeout -s KILL "$n" /bin/sh -c 'env "$@"; exit $?' sh "$@"; fi; """
    'env "$@"; exit $?'
)

# Ends the groups named, waits up to a second for them to be gone, and says which are left. A dead process that nobody
# reaps (PID 1 of a container often does not) still answers signals, so ps has the last word where there is one.
_KILL = (
    'for g in "$@"; do kill -s KILL -- "-$g" 2>/dev/null || kill -s KILL "$g" 2>/dev/null; done; '
    """ps=$(command -v ps); live() { kill -s 0 -- "-$1" 2>/dev/null || return 1; [ -z "$ps" ] && return 0; """
    """ps -e -o pgid= -o stat= | { while read -r p s; do """
    """[ "$p" = "$1" ] && case $s in Z*) ;; *) return 0;; esac; done; return 1; }; }; """
    'i=0; while [ $i -lt 20 ]; do left=; for g in "$@"; do live "$g" && left="$left $g"; done; '
    '[ -z "$left" ] && break; sleep 0.05 2>/dev/null || sleep 1; i=$((i+1)); done; echo "left:$left"'
)


def new_mark() -> str:
    """A word that no command prints by chance."""
    return f"pdctl-{secrets.token_hex(8)}"


def wrapped(words: Sequence[str], mark: str, seconds: int) -> bytes:
    """The line for the login shell that runs the words for at most ``seconds``."""
    return _line(["/bin/sh", "-c", _WRAP, "pdctl", mark, str(seconds), *words])


def killing(groups: Sequence[int], *, sudo: bool) -> bytes:
    """The line that ends process groups and prints ``left:`` and those that are still there."""
    words = ["/bin/sh", "-c", _KILL, "pdctl", *(str(group) for group in groups)]
    return _line([*SUDO, *words] if sudo else words)


def _line(words: Sequence[str]) -> bytes:
    """One line for the login shell. A backslash inside single quotes means itself to a Bourne shell but not to fish,
    so it goes outside of them."""
    line = shell_line(words).replace("\\", "'\"\\\\\"'")
    return f"exec {line}".encode("utf-8", "surrogateescape")


class Opening:
    """Takes a stream's bytes as they come and drops everything up to the mark."""

    def __init__(self, mark: str) -> None:
        self._mark = f"{mark} ".encode()
        self._held: bytearray | None = bytearray()
        self.group: int | None = None

    def feed(self, data: bytes) -> bytes:
        """What of the data is the command's own."""
        if self._held is None:
            return data
        self._held += data
        at = self._held.find(self._mark)
        end = self._held.find(b"\n", at) if at >= 0 else -1
        if end < 0:
            return b""
        number = bytes(self._held[at + len(self._mark) : end])
        own = bytes(self._held[end + 1 :])
        self._held = None
        self.group = int(number) if number.isdigit() else None
        return own

    @property
    def is_over(self) -> bool:
        return self._held is None

    @property
    def noise(self) -> bytes:
        """What came, while the mark has not come."""
        return bytes(self._held or b"")
