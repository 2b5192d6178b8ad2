"""Generated pages: the values are those that prometheus_client's parser reads."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pdctl.facts.page import read_page

NAMES = ["sglang:num_running_reqs", "sglang:num_requests", "b", "x_y", "sglang_x"]
WANTED = frozenset({b"sglang:num_running_reqs", b"b", b"sglang_x"})
ROUGH = st.text(alphabet=st.sampled_from('abc{}",=#\\\n \t}模é\u00a0'), max_size=8)
LABEL = st.sampled_from(["le", "dp_rank", "model_name", "priority", "_x", "endpoint", "A1"])
NUMBERS = st.one_of(
    st.integers(-(10**18), 10**18).map(str),
    st.floats(allow_nan=True, allow_infinity=False).map(repr),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e5", "2.5E-7", "0", "-0.0", "+1", "007", "1.", ".5"]),
)
GAP = st.sampled_from([" ", "  ", " \t"])
END = st.sampled_from(["", " ", "\r", " 1732233600123", "  -12 ", ' # {trace_id="a}b{"} 1.5', ' # {a="b"} 2 3'])


def escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(LABEL, ROUGH, max_size=4))
    block = ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    if labels and draw(st.booleans()):
        block += ","
    around = draw(st.sampled_from(["", "", " "]))
    shown = f"{around}{{{block}}}" if labels or draw(st.booleans()) else ""
    return draw(st.sampled_from(NAMES)) + shown + draw(GAP) + draw(NUMBERS) + draw(END)


COMMENT = st.sampled_from(
    ["", "# note {a=\"b\"} 1", "# TYPE b gauge", "# HELP b Of { and } and \"", "#", "# HELP x_y", " "]
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(sample_lines(), COMMENT), min_size=1, max_size=12))
def test_the_same_values_as_prometheus_client(lines: list[str]) -> None:
    text = "\n".join([*lines, "end 1"]) + "\n"
    expected: dict[str, list[tuple[dict[str, str], str]]] = {}
    for family in text_string_to_metric_families(text):
        for s in family.samples:
            if s.name.encode() in WANTED:
                expected.setdefault(s.name, []).append((s.labels, repr(float(s.value))))
    page = read_page(text.encode(), WANTED)
    read = {name: [(dict(labels), repr(value)) for labels, value in rows] for name, rows in page.samples.items()}
    assert {name: sorted(rows, key=repr) for name, rows in read.items()} == {
        name: sorted(rows, key=repr) for name, rows in expected.items()
    }
