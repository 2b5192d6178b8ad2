"""pdctl.toml: what is read, and for each way to get it wrong the file, line, key and what would be right."""

from __future__ import annotations

import dataclasses
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.errors import InventoryError
from pdctl.inventory.toml import read_cluster, render_cluster
from pdctl.model.cluster import Cluster, Host, Instance, KeySource, Role

WHOLE = """\
name = "prod-a"

[[host]]
name = "gpu-01"
ssh = "ops@gpu-01.example:2222"
become = "sudo"

[[instance]]
name = "prefill-0"
role = "prefill"
url = "http://127.0.0.1:30000/"
host = "gpu-01"
unit = "sglang-prefill.service"
script = "/opt/serve/prefill.sh"
log = "/var/log/prefill.log"
bootstrap_port = 8998
api_key_env = "PREFILL_KEY"
watch = ["/opt/serve/common.env", "/opt/serve"]
restart_command = ["/opt/serve/restart.sh", "prefill"]
nodes = ["gpu-02"]

[[host]]
name = "gpu-02"

[[instance]]
name = "decode-0"
role = "decode"
url = "https://d0.example"
engine = "vllm"
api_key_file = "/etc/pdctl/decode.key"
ca_file = "/etc/pdctl/ca.pem"

[[instance]]
name = "router-0"
role = "router"
url = "http://r0:30001"
metrics = "http://r0:29000"
"""


def test_every_key_is_read() -> None:
    cluster = read_cluster(WHOLE, "pdctl.toml")
    assert cluster == Cluster(
        "prod-a",
        (
            Instance(
                "prefill-0",
                Role.PREFILL,
                url="http://127.0.0.1:30000",
                host="gpu-01",
                unit="sglang-prefill.service",
                script="/opt/serve/prefill.sh",
                log="/var/log/prefill.log",
                bootstrap_port=8998,
                api_key=KeySource(env="PREFILL_KEY"),
                watch=("/opt/serve/common.env", "/opt/serve"),
                restart_command=("/opt/serve/restart.sh", "prefill"),
                nodes=("gpu-02",),
            ),
            Instance(
                "decode-0",
                Role.DECODE,
                url="https://d0.example",
                engine="vllm",
                api_key=KeySource(file="/etc/pdctl/decode.key"),
                ca_file="/etc/pdctl/ca.pem",
            ),
            Instance("router-0", Role.ROUTER, url="http://r0:30001", metrics_url="http://r0:29000/metrics"),
        ),
        (Host("gpu-01", "ops@gpu-01.example:2222", "sudo"), Host("gpu-02")),
        "pdctl.toml",
    )


HEAD = 'name = "a"\n[[host]]\nname = "gpu-01"\n\n[[instance]]\nname = "p0"\n'  # the next line is line 7
ENGINE = HEAD + 'role = "prefill"\nurl = "http://h:1"\n'  # the next line is line 9

# text, then what the message starts with, then a part of the hint
WRONG = {
    "syntax": (HEAD + "role = prefill\n", "f.toml:7:8: not TOML: invalid value", "role = prefill"),
    "role": (HEAD + 'role = "prefil"\n', 'f.toml:7: instance p0: role: there is no role "prefil"', 'mean "prefill"?'),
    "role in capitals": (HEAD + 'role = "DECODE"\n', "f.toml:7: instance p0: role", 'mean "decode"?'),
    "role missing": (HEAD + 'url = "http://h:1"\n', "f.toml:5: instance p0: role is missing", 'role = "prefill"'),
    "role of another type": (HEAD + "role = 1\n", "f.toml:7: instance p0: role: must be text", 'role = "prefill"'),
    "unknown key": (ENGINE + "bootstrap_prot = 1\n", "f.toml:9: instance p0: bootstrap_prot", '"bootstrap_port"?'),
    "unknown host key": ('[[host]]\nname="a"\nuser="x"\n', "f.toml:3: host a: user: there is no", "name, ssh, become"),
    "unknown table": ("[[instances]]\nx = 1\n", 'f.toml:1: there is no table "instances"', 'mean "instance"?'),
    "instance key on top": ('url = "http://h"\n', "f.toml:1: the file: url: belongs into", "[[instance]]"),
    "one bracket": ('[instance]\nname = "a"\n', "f.toml:1: instance: it is written once", "two brackets"),
    "engine": (ENGINE + 'engine = "trt"\n', 'f.toml:9: instance p0: engine: there is no engine "trt"', "sglang, vllm"),
    "become": ('[[host]]\nname = "a"\nbecome = "doas"\n', "f.toml:3: host a: become", "one of: sudo"),
    "port type": (
        ENGINE + 'bootstrap_port = "8998"\n',
        "f.toml:9: instance p0: bootstrap_port: must be a whole",
        "8998",
    ),
    "port range": (ENGINE + "bootstrap_port = 70000\n", "f.toml:9: instance p0: bootstrap_port: 70000 is no", "8998"),
    "watch type": (
        ENGINE + 'watch = "/x"\n',
        "f.toml:9: instance p0: watch: must be a list of texts",
        'watch = ["/opt',
    ),
    "watch item": (ENGINE + 'watch = ["/x", 3]\n', "f.toml:9: instance p0: watch: must be text", 'watch = ["/opt'),
    "restart type": (ENGINE + 'restart_command = "a b"\n', "f.toml:9: instance p0: restart_command", '["/opt/serve'),
    "node unknown": (
        ENGINE + 'host = "gpu-01"\nunit = "p"\nnodes = ["gpu-0"]\n',
        'f.toml:11: instance p0: nodes: no [[host]] is named "gpu-0"',
        '"gpu-01"?',
    ),
    "node twice": (
        ENGINE + 'host = "gpu-01"\nunit = "p"\nnodes = ["gpu-01"]\n',
        'f.toml:11: instance p0: nodes: "gpu-01" is named twice',
        "each once",
    ),
    "node of nothing": (ENGINE + 'nodes = ["gpu-01"]\n', "f.toml:9: instance p0: nodes: only an engine", "unit"),
    "host unknown": (
        ENGINE + 'host = "gpu-1"\n',
        'f.toml:9: instance p0: host: no [[host]] is named "gpu-1"',
        '"gpu-01"?',
    ),
    "no scheme": (HEAD + 'role = "decode"\nurl = "h:1"\n', "f.toml:8: instance p0: url", "http://"),
    "url port": (HEAD + 'role = "decode"\nurl = "http://h:99999"\n', "f.toml:8: instance p0: url", "http://"),
    "url scheme": (HEAD + 'role = "decode"\nurl = "ftp://h"\n', "f.toml:8: instance p0: url", "http://"),
    "url without host": (HEAD + 'role = "decode"\nurl = "http://"\n', "f.toml:8: instance p0: url", "http://"),
    "metrics url": (ENGINE + 'metrics = "h:29000"\n', "f.toml:9: instance p0: metrics", "29000/metrics"),
    "nowhere": (HEAD + 'role = "decode"\n', "f.toml:5: instance p0: nothing says where", "url ="),
    "same name": (ENGINE + '[[instance]]\nname = "p0"\nrole = "decode"\nurl = "http://i:1"\n', "f.toml:10:", "its own"),
    "same url": (ENGINE + '[[instance]]\nname = "d"\nrole = "decode"\nurl = "http://H:1/"\n', "f.toml:12:", "its own"),
    "same host": ('[[host]]\nname = "a"\n[[host]]\nname = "a"\n', "f.toml:4:", "its own"),
    "name with slash": ('[[instance]]\nname = "../x"\nrole = "decode"\nurl = "http://h"\n', "f.toml:2:", "no spaces"),
    "empty name": ('[[instance]]\nname = ""\nrole = "decode"\nurl = "http://h"\n', "f.toml:2:", "no spaces"),
    "ssh option": ('[[host]]\nname = "a"\nssh = "-oProxyCommand=x"\n', "f.toml:3: host a: ssh", "ops@"),
    "ssh port": ('[[host]]\nname = "a"\nssh = "h:70000"\n', "f.toml:3: host a: ssh", "ops@"),
    "two keys": (ENGINE + 'api_key_env = "A"\napi_key_file = "/b"\n', "f.toml:10: instance p0: api_key_file", "one of"),
    "no instance": ('name = "a"\n', "f.toml: it names no instance", "[[instance]]"),
    "name type": ("name = 3\n", "f.toml:1: name: must be text", 'name = "prod-a"'),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_error_names_file_line_key_and_what_would_be_right(case: str) -> None:
    text, start, hint = WRONG[case]
    with pytest.raises(InventoryError) as caught:
        read_cluster(text, "f.toml")
    assert caught.value.message.startswith(start)
    assert hint in caught.value.hint


@pytest.mark.parametrize("key", ["api_key", "token", "password"])
def test_a_key_in_plain_text_is_refused_and_never_repeated(key: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read_cluster(ENGINE + f'{key} = "sk-very-secret"\n', "f.toml")
    assert caught.value.message == f"f.toml:9: instance p0: {key}: pdctl keeps no secret"
    assert "api_key_env" in caught.value.hint and "api_key_file" in caught.value.hint
    assert "sk-very-secret" not in caught.value.message + caught.value.hint


@pytest.mark.parametrize(
    "line",
    [
        'api_key_env = "sk-very-secret"\n',
        'metrics = "http://u:sk-very-secret@h/metrics"\n',
        "api_key = sk-very-secret\n",
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(line: str) -> None:
    with pytest.raises(InventoryError) as caught:
        read_cluster(ENGINE + line, "f.toml")
    assert caught.value.message.startswith("f.toml:9")
    assert "sk-very-secret" not in caught.value.message + caught.value.hint


def test_a_recorded_inventory_is_read_whatever_another_version_wrote() -> None:
    text = ENGINE + 'api_key = "***"\nnew_key = 1\n[[alert]]\nto = "x"\n'
    cluster = read_cluster(text, "capture", recorded=True)
    assert [i.name for i in cluster.instances] == ["p0"]


def test_a_multi_line_text_does_not_shift_or_fake_lines() -> None:
    text = '[[instance]]\nname = "p0"\nlog = """/a\n[[instance]]\nrole = "decode"\n"""\nrole = "prefil"\n'
    with pytest.raises(InventoryError, match=r"^f\.toml:7: instance p0: role"):
        read_cluster(text, "f.toml")


def test_one_engine_address_on_two_hosts_is_two_instances() -> None:
    row = (
        '[[host]]\nname = "{0}"\n[[instance]]\nname = "p-{0}"\nhost = "{0}"\n'
        'role = "prefill"\nurl = "http://127.0.0.1:1"\n'
    )
    text = row.format("a") + row.format("b")
    assert len(read_cluster(text, "f.toml").instances) == 2


def test_notes_become_comments_and_cannot_break_out_of_them() -> None:
    cluster = Cluster("a", (Instance("p0", Role.PREFILL, url="http://h:1"),))
    text = render_cluster(cluster, {"p0": ['release 0.5.19\nname = "x"', "bad \x1b[31m \x07"], "": ["asked today"]})
    assert read_cluster(text, "command line") == cluster
    assert '# release 0.5.19\n# name = "x"\n# bad ?[31m ?\nname = "p0"' in text


NAMES = st.text("abcdefghijklmnopqrstuvwxyzäß日本0123456789._-", min_size=1, max_size=12).filter(
    lambda name: name[0] not in ".-" and "->" not in name
)
WORDS = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    hosts = tuple(
        Host(name, draw(st.sampled_from([None, "ops@h:22", "h"]))) for name in draw(st.lists(NAMES, unique=True))
    )
    instances = [
        Instance(
            name,
            draw(st.sampled_from(Role)),
            url=f"http://h{number}:30000",
            host=draw(st.sampled_from([None, *(h.name for h in hosts)])),
            log=draw(st.none() | WORDS),
            bootstrap_port=draw(st.none() | st.integers(1, 65535)),
            engine=draw(st.sampled_from(["sglang", "vllm"])),
            api_key=draw(st.sampled_from([None, KeySource(env="A_1"), KeySource(file="/b c")])),
            watch=tuple(draw(st.lists(WORDS, max_size=3))),
        )
        for number, name in enumerate(names)
    ]
    return Cluster(draw(WORDS), tuple(instances), hosts, "f.toml")


@given(clusters())
def test_what_is_written_is_read_back_as_the_same_cluster(cluster: Cluster) -> None:
    text = render_cluster(cluster)
    assert read_cluster(text, "f.toml") == cluster
    assert tomllib.loads(text)["name"] == cluster.name


def test_every_field_of_an_instance_has_its_key_in_the_file() -> None:
    """A field added to the model must be added to the file as well, or init and captures would lose it."""
    written = render_cluster(read_cluster(WHOLE, "f"))
    renamed = {"metrics_url": "metrics", "api_key": "api_key_env"}
    made_of_others = {"part_of"}  # a further node is made of its engine's nodes, and stands in no file
    for field in (f for f in dataclasses.fields(Instance) if f.name not in made_of_others):
        assert f"\n{renamed.get(field.name, field.name)} = " in written
