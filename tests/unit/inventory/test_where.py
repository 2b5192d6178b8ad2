"""Where an inventory is looked for, and at which line of it a key stands."""

from __future__ import annotations

import pytest

from pdctl.inventory.lines import Place, line_of
from pdctl.inventory.where import candidates


def test_the_order_is_directory_variable_home() -> None:
    found = [(c.path, c.must_exist) for c in candidates("/x/c.toml", "/home/u/.config")]
    assert found == [("pdctl.toml", False), ("/x/c.toml", True), ("/home/u/.config/pdctl/pdctl.toml", False)]


def test_a_variable_that_is_not_set_is_told_and_not_looked_at() -> None:
    assert [c.shown for c in candidates(None, "/h")] == [
        "./pdctl.toml",
        "$PDCTL_CONFIG (not set)",
        "/h/pdctl/pdctl.toml",
    ]


TEXT = """\
# [[host]]
name = "a"

  [[host]]   # the first
"name" = "b"
[[ instance ]]
url = "x # [[host]]"
[[host]]
note = '''
[[host]]
name = "no"
'''
name = "c"
"""


@pytest.mark.parametrize(
    "place, line",
    [
        (Place(None, 0, "name"), 2),
        (Place("host", 0), 4),
        (Place("host", 0, "name"), 5),
        (Place("instance", 0, "url"), 7),
        (Place("host", 1), 8),
        (Place("host", 1, "name"), 13),
        (Place("host", 1, "ssh"), 8),
        (Place("host", 2), None),
        (Place("other", 0, "x"), None),
    ],
)
def test_the_line_of_a_place(place: Place, line: int | None) -> None:
    assert line_of(TEXT, place) == line
