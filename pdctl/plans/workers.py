"""Whether a router lists the workers it should."""

from __future__ import annotations

from urllib.parse import urlsplit

from pdctl.model.router import Workers


def missing_workers(workers: Workers, wanted: tuple[str, ...], exact: bool) -> str:
    """Which of the wanted workers a router does not list as healthy; "" where it lists all. Unless ``exact``, a router
    that lists none of these addresses knows the same engines by others: then their number counts."""
    rows = {address_of(row.url): row for row in workers.rows}
    absent = [url for url in wanted if address_of(url) not in rows]
    if len(absent) == len(wanted) and not exact:
        absent = [f"{len(wanted) - len(rows)} of {len(wanted)}"] if len(rows) < len(wanted) else []
    if absent:
        return f"not registered: {', '.join(absent)}"
    sick = [row.url for row in workers.rows if row.healthy is False]
    return f"not healthy: {', '.join(sick)}" if sick else ""


def address_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of a URL, so that spellings of one compare equal."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    try:
        port = parts.port
    except ValueError:
        port = None
    return parts.scheme, (parts.hostname or "").lower(), port or (443 if parts.scheme == "https" else 80)
