"""What can go wrong with pdctl itself, each with a hint at what to do. Imports nothing; cli.py maps it to exit status.

    PdctlError            70   anything that went wrong inside
      UsageError          64   the command line asks for what cannot be done
      InventoryError      64   pdctl.toml (or a URL given instead) cannot be read
      CaptureError        64   a capture cannot be read
      StepFailed          75   a step of an action failed, and the action stopped there
      Busy                 3   another run is at it, so this one did not look: unknown
      OutOfTime            3   time was up before there was a verdict: unknown
      SourceError          3   what remembers the cluster's past did not answer: unknown

What is wrong with the *cluster* is never an exception: it is a finding, or an answer that was missed.
"""

from __future__ import annotations

UNKNOWN = 3
USAGE = 64
INTERNAL = 70
STEP_FAILED = 75
INTERRUPTED = 130
CLOSED_PIPE = 141  # what a shell reports of a program ended by SIGPIPE: 128 + 13


class PdctlError(Exception):
    """An error told in one line. ``hint`` is what to do about it, in as many lines as it takes."""

    kind = "internal"
    exit_status = INTERNAL

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PdctlError):
    """The command line asks for something that cannot be done."""

    kind = "usage"
    exit_status = USAGE


class InventoryError(PdctlError):
    """The inventory cannot be read; the message names file, line and key, the hint what would be right."""

    kind = "inventory"
    exit_status = USAGE


class CaptureError(PdctlError):
    """A capture given with --from cannot be read."""

    kind = "capture"
    exit_status = USAGE


class SourceError(PdctlError):
    """A server that remembers the cluster's past (Prometheus) did not tell of it."""

    kind = "source"
    exit_status = UNKNOWN


class StepFailed(PdctlError):
    """A step of an action failed; nothing after it was done."""

    kind = "step-failed"
    exit_status = STEP_FAILED


class Busy(PdctlError):
    """Another run of the same kind is still at it, and this one did not begin."""

    kind = "busy"
    exit_status = UNKNOWN


class OutOfTime(PdctlError):
    """The deadline of the whole run passed before there was a verdict."""

    kind = "deadline"
    exit_status = UNKNOWN
