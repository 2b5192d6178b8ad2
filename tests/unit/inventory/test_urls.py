"""A cluster from URLs alone."""

from __future__ import annotations

import pytest

from pdctl.errors import UsageError
from pdctl.inventory.rules import url_fault
from pdctl.inventory.urls import cluster_of_urls
from pdctl.model.cluster import Role


def test_names_follow_the_order_given() -> None:
    cluster = cluster_of_urls(["http://a:1", "http://b:1/"], ["http://c:1"], ["http://r:1"], ["https://p"])
    rows = [(i.name, i.role, i.url) for i in cluster.instances]
    assert rows == [
        ("prefill-0", Role.PREFILL, "http://a:1"),
        ("prefill-1", Role.PREFILL, "http://b:1"),
        ("decode-0", Role.DECODE, "http://c:1"),
        ("router-0", Role.ROUTER, "http://r:1"),
        ("proxy-0", Role.PROXY, "https://p"),
    ]


def test_engines_have_their_page_on_their_own_port_and_routers_only_where_it_is_given() -> None:
    cluster = cluster_of_urls(
        ["http://a:1"], [], ["http://r:1", "http://s:1,http://s:29000", "http://t:1,http://t:2/m"]
    )
    assert [i.metrics for i in cluster.instances] == [
        "http://a:1/metrics",
        None,
        "http://s:29000/metrics",
        "http://t:2/m",
    ]


@pytest.mark.parametrize(
    "prefill, says",
    [
        (["h:1"], "write http://h:1"),
        (["http://h:1,h:2"], "write http://h:2"),
        (["http://h:1,"], "no scheme"),
        ([""], "no scheme"),
        (["http://h:1", "http://H:1/"], "given twice"),
        (["http://d:1"], "--prefill and --decode"),
    ],
)
def test_what_is_no_url_or_is_there_already_is_refused(prefill: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        cluster_of_urls(prefill, ["http://d:1"])


@pytest.mark.parametrize("url", ["http://h", "https://h:443/base", "http://[::1]:30000", "http://127.0.0.1:65535/"])
def test_good_urls_have_no_fault(url: str) -> None:
    assert url_fault(url) == ""


@pytest.mark.parametrize(
    "url",
    [
        "http://h:0",
        "http://h:",
        "http://[::1]:/base",
        "http://h:65536",
        "http://h:x",
        "http://h/?a=1",
        "http://h#a",
        "http://h h",
        "http://\x1bh",
        "http://:80",
    ],
)
def test_bad_urls_have_one(url: str) -> None:
    assert url_fault(url)


@pytest.mark.parametrize("url", ["h:1", "10.0.0.1:30000", "h:", "h::30000", "", "h h", "me:secret@h:1"])
def test_what_is_written_as_better_is_better(url: str) -> None:
    """The address a fault proposes is none that would be refused in its turn."""
    proposed = url_fault(url).partition("write ")[2].partition(",")[0]
    assert proposed.startswith("http://") and url_fault(proposed) == ""
    assert "secret" not in url_fault(url)


@pytest.mark.parametrize("page", ["/metrics", "/metrics/", "/health", "/server_info", "/v1", "/v1/chat/completions"])
def test_a_page_of_an_instance_is_not_its_address(page: str) -> None:
    with pytest.raises(UsageError, match=r"is a page of it; write http://h:1/base$"):
        cluster_of_urls([f"http://h:1/base{page}"])
    assert cluster_of_urls([], [], [f"http://r:1,http://r:2{page}"]).routers[0].metrics == f"http://r:2{page}"


def test_an_open_bracket_is_called_that() -> None:
    assert url_fault("http://[::1") == '"http://[::1" has an open bracket'
