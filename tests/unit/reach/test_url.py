from __future__ import annotations

import pytest

from pdctl.reach.url import joined, shown, target_of


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "host_header"),
    [
        ("http://10.0.0.1:30000/metrics", "10.0.0.1", 30000, "/metrics", "10.0.0.1:30000"),
        ("http://Engine.Example", "engine.example", 80, "/", "engine.example"),
        ("https://engine/v1/loads?include=core,disagg", "engine", 443, "/v1/loads?include=core,disagg", "engine"),
        ("https://engine:443/x", "engine", 443, "/x", "engine"),
        ("http://[2001:db8::1]:8080/m", "2001:db8::1", 8080, "/m", "[2001:db8::1]:8080"),
        ("http://[::1]", "::1", 80, "/", "[::1]"),
        ("http://[fe80::1%25eth0]:1/", "fe80::1%eth0", 1, "/", "[fe80::1]:1"),
        ("http://h/a b?c=d e#f", "h", 80, "/a%20b?c=d%20e", "h"),
        ("http://h/a%20b", "h", 80, "/a%20b", "h"),
        ("http://h?x=1", "h", 80, "/?x=1", "h"),
        ("http://müller.example/", "xn--mller-kva.example", 80, "/", "xn--mller-kva.example"),
    ],
)
def test_parts(url: str, host: str, port: int, path: str, host_header: str) -> None:
    target = target_of(url)
    assert (target.host, target.port, target.path, target.host_header) == (host, port, path, host_header)


@pytest.mark.parametrize(
    "url", ["", "metrics", "h:1/x", "file:///etc/passwd", "http://", "http://h:0x1/", "http://h:70000"]
)
def test_what_is_no_url_of_ours(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        target_of(url)


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/login", "http://h:1/login"),
        ("metrics/", "http://h:1/metrics/"),
        ("//other/x", "http://other/x"),
        ("https://h:1/metrics", "https://h:1/metrics"),
        ("?a=1", "http://h:1/metrics?a=1"),
    ],
)
def test_where_a_redirect_leads(location: str, expected: str) -> None:
    assert joined(target_of("http://h:1/metrics"), location) == target_of(expected)


def test_same_origin_is_scheme_host_and_port() -> None:
    base = target_of("http://h:80/a")
    assert base.same_origin(target_of("http://H/b"))
    assert not base.same_origin(target_of("https://h:80/a"))
    assert not base.same_origin(target_of("http://h:81/a"))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://ops:secret@h:1/x?y=1", "http://ops:***@h:1/x?y=1"),
        ("http://ops:@h/", "http://ops:***@h/"),
        ("http://ops@h/", "http://ops@h/"),
        ("http://h/", "http://h/"),
    ],
)
def test_a_password_is_not_shown(url: str, expected: str) -> None:
    assert shown(url) == expected
    assert target_of(url).shown == expected


def test_user_and_password_become_basic_auth() -> None:
    # RFC 7617's own example: Aladdin:open sesame
    assert target_of("http://Aladdin:open%20sesame@h/").basic == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="
    assert target_of("http://h/").basic is None
