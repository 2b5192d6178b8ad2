"""What a URL must be to be asked. Needs nothing of the inventory file's schema."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

_PAGE = re.compile(r"/(?:metrics|health|health_generate|server_info|get_server_info|workers|v1(?:/[a-z/]+)?)/*\Z")


def url_fault(url: str) -> str:
    """What is wrong with a URL that is to be asked, "" where nothing is.

    >>> url_fault("10.0.0.1:30000")
    '"10.0.0.1:30000" has no scheme; write http://10.0.0.1:30000'
    """
    if "://" not in url:
        better = f"http://{url.lstrip('/')}"
        write = "http://10.0.0.1:30000, say" if url_fault(better) else better
        return f'"{_without_login(better).removeprefix("http://")}" has no scheme; write {write}'
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        wrong = "a port that is none; ports are 1 to 65535" if url.count("[") == url.count("]") else "an open bracket"
        return f'"{_without_login(url)}" has {wrong}'
    return _parts_fault(parts, port, _without_login(url))


def _parts_fault(parts: SplitResult, port: int | None, url: str) -> str:
    if parts.scheme not in ("http", "https"):
        return f'"{url}" is not http:// or https://'
    if parts.username is not None or parts.password is not None:
        return f'"{url}" would hold a login in plain text; use api_key_env or api_key_file'
    if not parts.hostname or any(c.isspace() or not c.isprintable() for c in url):
        return f'"{url}" names no host'
    if parts.netloc.endswith(":"):
        return f'"{url}" has a colon and no port after it; ports are 1 to 65535'
    if port == 0:
        return f'"{url}" has port 0; ports are 1 to 65535'
    if parts.query or parts.fragment:
        return f'"{url}" has a part after ? or #; give the address only'
    return ""


def instance_fault(url: str) -> str:
    """What is wrong with the URL of an instance, beside what is wrong with any: pages are asked below it.

    >>> instance_fault("http://10.0.0.1:30000/metrics")
    '"http://10.0.0.1:30000/metrics" is a page of it; write http://10.0.0.1:30000'
    """
    if wrong := url_fault(url):
        return wrong
    page = _PAGE.search(url)
    return f'"{url}" is a page of it; write {url[: page.start()]}' if page else ""


def _without_login(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//***@", url)
