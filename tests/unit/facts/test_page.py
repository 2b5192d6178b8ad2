"""Reading pages: what the format allows, and what a page that was cut looks like."""

from __future__ import annotations

import gzip
import math

import pytest
from http_answers import DATA, recorded
from prometheus_client.parser import text_string_to_metric_families

from pdctl.facts.base import Unreadable
from pdctl.facts.page import Sample, read_page
from pdctl.model.answer import Why

WANTED = frozenset({b"a", b"b_total", b"c:d"})


def of(text: str | bytes, name: str = "a") -> list[Sample]:
    body = text.encode() if isinstance(text, str) else text
    return read_page(body, WANTED).of(name)


@pytest.mark.parametrize(
    ("line", "labels", "value"),
    [
        ("a 1", {}, 1.0),
        ("a 1.0", {}, 1.0),
        ("a{} 2", {}, 2.0),
        ('a{x="1"} 3', {"x": "1"}, 3.0),
        ('a{x="1",} 3', {"x": "1"}, 3.0),
        ('a{y="2",x="1"} 3', {"x": "1", "y": "2"}, 3.0),
        ('a{ x = "1" , y = "2" } 3', {"x": "1", "y": "2"}, 3.0),
        ('a {x="1"} 3', {"x": "1"}, 3.0),
        ('  a{x="1"}   3  ', {"x": "1"}, 3.0),
        ('a{x="1"}\t3', {"x": "1"}, 3.0),
        ("a\t3", {}, 3.0),
        ('a{x="1"} 3 1732233600000', {"x": "1"}, 3.0),
        ("a 3 1732233600000", {}, 3.0),
        ("a 3 -1732233600000", {}, 3.0),
        (r'a{x="q\"q"} 4', {"x": 'q"q'}, 4.0),
        (r'a{x="b\\"} 4', {"x": "b\\"}, 4.0),
        (r'a{x="b\\n"} 4', {"x": "b\\n"}, 4.0),
        (r'a{x="n\nn"} 4', {"x": "n\nn"}, 4.0),
        (r'a{x="t\t"} 4', {"x": r"t\t"}, 4.0),
        ('a{x="}"} 5', {"x": "}"}, 5.0),
        ('a{x="} 9"} 5', {"x": "} 9"}, 5.0),
        ('a{x="{y=\\"1\\"} 2"} 5', {"x": '{y="1"} 2'}, 5.0),
        ('a{x="a,b=c"} 5', {"x": "a,b=c"}, 5.0),
        ('a{x="# no"} 5', {"x": "# no"}, 5.0),
        ('a{x=""} 5', {"x": ""}, 5.0),
        ('a{x="1"} 6 # {trace="t",span="}"} 0.5 1732233600.1', {"x": "1"}, 6.0),
        ('a{x="1"} 6 1732233600 # {trace_id="t_1"} 0.5', {"x": "1"}, 6.0),
        ('a 6 # {trace_id="t"} 0.5', {}, 6.0),
        ('a{"quoted.name"="v",x="1"} 7', {"quoted.name": "v", "x": "1"}, 7.0),
        ("a 1e5", {}, 100000.0),
        ("a 1.5E-3", {}, 0.0015),
        ("a -0.25", {}, -0.25),
        ("a +3", {}, 3.0),
        ("a +Inf", {}, math.inf),
        ("a -Inf", {}, -math.inf),
        ("a +Inf 1732233600000", {}, math.inf),
    ],
)
def test_one_line(line: str, labels: dict[str, str], value: float) -> None:
    assert of(f"# TYPE a gauge\n{line}\n") == [(labels, value)]


def test_nan_stays_nan() -> None:
    ((labels, value),) = of('a{x="1"} NaN\n')
    assert labels == {"x": "1"}
    assert math.isnan(value)


def test_names_are_whole_and_not_prefixes_of_others() -> None:
    page = read_page(b'aa 1\na_b{a="1"} 2\nb_total 3\nb_total_more 4\nc:d{x="1"} 5\n', WANTED)
    assert dict(page.samples) == {"b_total": [({}, 3.0)], "c:d": [({"x": "1"}, 5.0)]}
    assert page.names == {"aa", "a_b", "b_total", "b_total_more", "c:d"}


def test_comments_that_look_like_samples_are_no_samples() -> None:
    text = '# HELP a of a{x="1"} 9\n# TYPE a gauge\n#a 8\n # a{x="2"} 7\n# a 6\na 1\n'
    assert of(text) == [({}, 1.0)]


def test_carriage_returns_and_blank_lines() -> None:
    assert of('\r\n# TYPE a gauge\r\na{x="1"} 1.0\r\n\r\na 2\r\n') == [({"x": "1"}, 1.0), ({}, 2.0)]


def test_no_comments_at_all() -> None:
    assert of('a{x="1"} 1\na{x="2"} 2\n') == [({"x": "1"}, 1.0), ({"x": "2"}, 2.0)]


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert of(b'a{x="\xff\xfe"} 1\n') == [({"x": "\ufffd\ufffd"}, 1.0)]


def test_other_scripts_come_through() -> None:
    assert of('a{x="模型"} 1\n') == [({"x": "模型"}, 1.0)]


def test_equal_label_blocks_on_lines_of_different_ends() -> None:
    text = 'a{x="1"} 1\na{x="1"} 2 # {x="1"} 3\na{x="1"} 4 5\n'
    assert [value for _, value in of(text)] == [1.0, 2.0, 4.0]


def test_lines_are_counted_without_the_empty_one_after_the_last_feed() -> None:
    assert read_page(b"a 1\nb_total 2\n", WANTED).lines == 2


def test_long_pages_are_read_to_their_end() -> None:
    rows = [f'a{{model_name="a-rather-long-model-name",n="{n}"}} {n}\n' for n in range(12_000)]
    page = read_page("".join(rows).encode(), WANTED)
    assert [(labels["n"], value) for labels, value in page.of("a")] == [(str(n), float(n)) for n in range(12_000)]
    assert page.lines == 12_000


@pytest.mark.parametrize(
    "body", [b"".join(b"n%d 1\n" % n for n in range(50_000)), b"\n" * 2_000_000 + b"a 1\n"], ids=["names", "lines"]
)
def test_a_page_of_endless_names_or_lines_is_given_up(body: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        read_page(body, WANTED)
    assert caught.value.why is Why.NOT_METRICS


def test_a_histogram_is_one_family() -> None:
    text = b'h_bucket{le="1"} 1\nh_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1\nhx_total 2\nother 3\n'
    assert read_page(text, WANTED).families("h") == 2


@pytest.mark.parametrize(
    "line",
    ["a x", 'a{x="1"}', 'a{x="1"} ', 'a{x="1" y="2"} 3', "a{x=1} 3", 'a{x="1"', "a 1 2 3", "a 1_000", 'a{x="1"} 1_0',
     "a 1 2_0", 'a{="1"} 2', 'a{x="1"}y="2"} 3', "a 0x10"],
)  # fmt: skip
def test_a_wanted_line_that_is_no_sample_makes_the_page_unreadable(line: str) -> None:
    with pytest.raises(Unreadable) as caught:
        of(f"b_total 1\n{line}\nb_total 2\n")
    assert caught.value.why is Why.NOT_METRICS


def test_a_broken_line_that_is_not_wanted_is_not_looked_at() -> None:
    assert of("zzz{ x\na 1\n") == [({}, 1.0)]


@pytest.mark.parametrize("body", [b"", b"\n", b" \r\n\t\n"])
def test_empty(body: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        read_page(body, WANTED)
    assert caught.value.why is Why.EMPTY


@pytest.mark.parametrize(
    "body",
    [b"<!doctype html><html>a 1\n</html>\n", b"\xef\xbb\xbf\n <html>", b'{"detail": "Not Found"}', b"{}", b'["a"]',
     b'"ok"\n'],
)  # fmt: skip
def test_other_text(body: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        read_page(body, WANTED)
    assert caught.value.why is Why.NOT_METRICS


@pytest.mark.parametrize(
    "body",
    [
        b'a 1\na{x="1"',
        b'a 1\na{x="1"} ',
        b'a 1\na{x="1"} 12',  # 12 of 12345.0: looks whole
        b"a 1\na 2",
        b"a 1\n# HELP b_tot",
        b"a 1\n# TYPE b_total counter",
    ],
)
def test_a_page_that_ends_without_a_line_feed_was_cut(body: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        read_page(body, WANTED)
    assert caught.value.why is Why.TRUNCATED
    assert "truncated" in caught.value.detail


@pytest.mark.parametrize(
    "body",
    [
        b"a 1\n# HELP b_total Says what.\n",
        b'# TYPE h histogram\nh_sum 1\nh_bucket{le="1"} 1\n',
        b'# TYPE h histogram\nh_bucket{le="1"} 1\nh_bucket{le="+Inf"} 1\n',
        b'# TYPE h histogram\nh_bucket{le="+Inf"} 1\nh_sum 1\n',
    ],
)
def test_a_page_that_ends_within_a_family_was_cut(body: bytes) -> None:
    with pytest.raises(Unreadable) as caught:
        read_page(body, WANTED)
    assert caught.value.why is Why.TRUNCATED


@pytest.mark.parametrize(
    "body",
    [
        b"a 1\n",
        b"a 1\n\n",  # the routers' exporter ends with an empty line
        b"a 1\n# TYPE b_total counter\n",  # a family without series yet, as prometheus_client writes it
        b'a 1\nh_bucket{le="+Inf"} 1\nh_count 1\nh_sum 1\n',
        b'a 1\nh_sum 1\nh_bucket{le="+Inf"} 1\nh_count 1\n',
        b"a 1\n# EOF\n",
        b"a 1\n# EOF",
        b"a 1\r\n",
    ],
)
def test_a_page_that_ends_as_exporters_end_theirs_is_whole(body: bytes) -> None:
    assert read_page(body, WANTED).of("a") == [({}, 1.0)]


def test_an_openmetrics_page_must_say_that_it_ends() -> None:
    kind = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert read_page(b"a 1\n# EOF\n", WANTED, kind).of("a") == [({}, 1.0)]
    with pytest.raises(Unreadable) as caught:
        read_page(b"a 1\n", WANTED, kind)
    assert caught.value.why is Why.TRUNCATED


def test_cut_anywhere_a_recorded_page_never_passes_for_a_whole_one_unless_only_families_are_missing() -> None:
    """At each byte: unreadable, or cut exactly between two families, where nothing in the bytes can tell."""
    whole = recorded("decode-0.5.10.post1-load.prom")
    passed = []
    for end in range(1, len(whole), 7):
        try:
            read_page(whole[:end], WANTED)
        except Unreadable as why:
            assert why.why is Why.TRUNCATED
        else:
            passed.append(end)
    assert all(whole[end - 1 : end] == b"\n" for end in passed)
    assert len(passed) < 25


@pytest.mark.parametrize(
    "path", sorted(p.name for p in DATA.glob("*.prom*")), ids=lambda name: name.removesuffix(".prom")
)
def test_recorded_pages_give_the_values_that_prometheus_client_reads(path: str) -> None:
    body = recorded(path)
    body = gzip.decompress(body) if path.endswith(".gz") else body
    expected: dict[str, list[tuple[dict[str, str], str]]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for s in family.samples:
            expected.setdefault(s.name, []).append((s.labels, repr(float(s.value))))
    page = read_page(body, frozenset(name.encode() for name in expected))
    read = {name: [(dict(labels), repr(value)) for labels, value in rows] for name, rows in page.samples.items()}
    assert read == expected
    assert page.names == set(expected)


def test_label_blocks_that_pages_share_are_read_once_and_nobodys_to_change() -> None:
    body = b'a{x="1",y="2"} 1\nb{x="1",y="2"} 2\n'
    (first, _), (again, _) = (read_page(body, {b"a", b"b"}).of("a")[0] for _ in range(2))
    assert first == again == {"x": "1", "y": "2"} and first is again
    with pytest.raises(TypeError):
        first["x"] = "3"  # type: ignore[index]


def test_long_label_blocks_are_read_and_not_kept() -> None:
    body = b'a{x="' + b"v" * 2000 + b'"} 1\n'
    ((labels, value),) = read_page(body, {b"a"}).of("a")
    assert (len(labels["x"]), value) == (2000, 1.0)
