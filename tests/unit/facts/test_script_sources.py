"""Where the files lie that a script reads in."""

from __future__ import annotations

import pytest

from pdctl.facts.script import script_of
from pdctl.facts.script_sources import followed, missing, placed, sources_of

SCRIPT = "/srv/pd/serve.sh"


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("/etc/pd/nccl.env", "/etc/pd/nccl.env"),
        ("nccl.env", "/srv/pd/nccl.env"),
        ("./nccl.env", "/srv/pd/nccl.env"),
        ("../common/nccl.env", "/srv/common/nccl.env"),
        ("$(dirname $0)/nccl.env", "/srv/pd/nccl.env"),
        ('$(dirname "$0")/nccl.env', "/srv/pd/nccl.env"),
        ('"$(dirname "$0")"/nccl.env', "/srv/pd/nccl.env"),
        ('$(dirname "${BASH_SOURCE[0]}")/nccl.env', "/srv/pd/nccl.env"),
        ('$(dirname -- "${BASH_SOURCE[0]}")/nccl.env', "/srv/pd/nccl.env"),
        ('$(dirname "$(readlink -f "$0")")/../nccl.env', "/srv/nccl.env"),
        ('$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/nccl.env', "/srv/pd/nccl.env"),
        ('$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )/nccl.env', "/srv/pd/nccl.env"),
        ('$(cd $(dirname $0); pwd)/nccl.env', "/srv/pd/nccl.env"),
        ("${BASH_SOURCE%/*}/nccl.env", "/srv/pd/nccl.env"),
        ("${0%/*}/nccl.env", "/srv/pd/nccl.env"),
        ("$PWD/nccl.env", "/srv/pd/nccl.env"),
        ("~/nccl.env", None),
        ("$CONDA_PREFIX/etc/x.sh", None),
        ("$(make_env)/x.sh", None),
        ("$(dirname $1)/x.sh", None),
        ("*.env", None),
        ("", None),
        ("$(", None),
        ("a; rm x", None),
    ],
)  # fmt: skip
def test_places(written: str, path: str | None) -> None:
    assert placed(written, SCRIPT) == path


def test_files_that_read_in_files() -> None:
    files = {"/srv/pd/a.env": "X=1\n. ./b.env\n", "/srv/pd/b.env": "export Y=$X\n"}
    script = script_of(SCRIPT, None, 'source "${0%/*}/a.env"\npython3 -m sglang.launch_server --tp $Y\n')
    assert sources_of(script) == {"${0%/*}/a.env": "/srv/pd/a.env"}
    assert missing(script, []) == ("/srv/pd/a.env",)
    half = followed(script, {"/srv/pd/a.env": files["/srv/pd/a.env"]}.get, None)
    assert missing(half, ["/srv/pd/a.env"]) == ("/srv/pd/b.env",)
    whole = followed(script, files.get, None)
    assert whole.flags["--tp-size"] == "1" and whole.variables["Y"] == "1" and missing(whole, files) == ()
    assert not any("not read here" in note for note in whole.unsure)


def test_a_script_without_sources_stays_as_it_is() -> None:
    script = script_of(SCRIPT, None, "python3 -m sglang.launch_server --tp 2\n")
    assert followed(script, lambda path: "X=1", None) is script


def test_files_that_read_in_one_another_end() -> None:
    script = script_of(SCRIPT, None, ". ./a\npython3 -m sglang.launch_server --tp 2\n")
    assert followed(script, lambda path: ". ./a\n. ./b\n", None).flags["--tp-size"] == "2"
