"""Router log lines: always coloured, latencies in whole microseconds."""

from __future__ import annotations

Line = tuple[str, str]  # level, dressed text

DIM, BOLD, ITALIC, OFF = "\x1b[2m", "\x1b[1m", "\x1b[3m", "\x1b[0m"
COLOURS = {"INFO": "\x1b[32m", "WARN": "\x1b[33m", "ERROR": "\x1b[31m"}
_OLD = "/home/runner/work/sglang/sglang/src/middleware.rs"
_NEW = "model_gateway/src/middleware/logging.rs"


def dress(at: str, level: str, text: str) -> str:
    """A whole line, with the colours the routers write even into a file."""
    return f"{DIM}{at}{OFF} {COLOURS[level]}{level:>5}{OFF} {text}"


def started(shape: str, path: str, request_id: str) -> Line:
    line = 170 if shape == "smg" else 310
    return "INFO", _span(shape, path, request_id) + _target(shape, "request", line) + "started processing request"


def finished(shape: str, path: str, request_id: str, status: int, micros: int) -> Line:
    span = _span(shape, path, request_id, status_code=str(status), latency=str(micros))
    if status >= 500:
        return "ERROR", span + _target(shape, "response", 342) + "request failed with server error"
    if status >= 400:
        return "WARN", span + _target(shape, "response", 351) + "request failed with client error"
    line = 227 if shape == "smg" else 359
    return "INFO", span + _target(shape, "response", line) + "finished processing request"


def gone(path: str, request_id: str, micros: int) -> Line:
    """smg alone says that a client left."""
    span = _span("smg", path, request_id, status_code="499", latency=str(micros))
    return "INFO", span + _target("smg", "response", 227) + "client closed the connection before the response"


def worker_error(kind: str, url: str, status: int, text: str) -> Line:
    word = kind.capitalize()
    if status >= 502:
        return "ERROR", _plain(f"{word} request failed {kind}_url={url} error=error sending request for url ({url})")
    tail = f" body={text}" if kind == "prefill" else ""
    reason = "500 Internal Server Error" if status == 500 else str(status)
    return "ERROR", _plain(f"{word} server returned error status {kind}_url={url} status={reason}{tail}")


def no_pair(request_id: str, error: str) -> Line:
    return "ERROR", _plain(f"Failed to select PD pair error={error} request_id={request_id}")


def breaker(url: str, before: str, after: str) -> Line:
    return "INFO", _plain(f"Circuit breaker state transition: {before} -> {after} worker={url}")


def health(url: str, healthy: bool) -> Line:
    if healthy:
        return "INFO", _plain(f"Worker {url} is now healthy")
    return "WARN", _plain(f"Worker {url} is now unhealthy")


def _plain(text: str) -> str:
    target = f"{DIM}smg::routers::http::pd_router{OFF}{DIM}:{OFF}"
    return f"{target} {DIM}src/routers/http/pd_router.rs{OFF}{DIM}:{OFF}{DIM}868:{OFF} {text}"


def _target(shape: str, name: str, line: int) -> str:
    file = _NEW if shape == "smg" else _OLD
    return f"{DIM}smg::{name}{OFF}{DIM}:{OFF} {DIM}{file}{OFF}{DIM}:{OFF}{DIM}{line}:{OFF} "


def _span(shape: str, path: str, request_id: str, **more: str) -> str:
    fields = {"method": "POST ", ("path" if shape == "smg" else "uri"): f"{path} ", "version": "HTTP/1.1 "}
    fields["module"] = '"smg" '
    fields["request_id"] = f'"{request_id}"'
    tail = "".join(f" {_field(key, value)}" for key, value in more.items())
    head = "".join(_field(key, value) for key, value in fields.items())
    return f"{BOLD}http_request{OFF}{BOLD}{{{OFF}{head}{tail}{BOLD}}}{OFF}{DIM}:{OFF} "


def _field(key: str, value: str) -> str:
    return f"{ITALIC}{key}{OFF}{DIM}={OFF}{value}"
