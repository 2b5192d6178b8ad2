"""Bodies of generate requests, and what answers of each endpoint say: bodies as real engines and routers send them."""

from __future__ import annotations

import json

import pytest

from pdctl.reach.generation import Dialect, Stream, Wanted, body_of, model_of, question_of, read_whole, told_error


def sent(dialect: Dialect, wanted: Wanted) -> dict[str, object]:
    value = json.loads(body_of(dialect, wanted))
    assert isinstance(value, dict)
    return value


def test_a_conversation_in_the_three_forms() -> None:
    wanted = Wanted(("one", "two", "three"), 7, True, "m")
    chat = sent(Dialect.CHAT, wanted)
    assert chat["messages"] == [
        {"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]  # fmt: skip
    assert (chat["model"], chat["max_tokens"], chat["stream"], chat["temperature"]) == ("m", 7, True, 0)
    assert sent(Dialect.TEXT, wanted)["prompt"] == "onetwothree"
    native = sent(Dialect.NATIVE, wanted)
    assert native["text"] == "onetwothree"
    assert native["sampling_params"] == {"temperature": 0, "max_new_tokens": 7}
    assert "model" not in native


def test_one_half_of_a_pair_names_the_host_that_is_no_peer() -> None:
    value = sent(Dialect.NATIVE, Wanted(("x",), half=True))
    assert (value["bootstrap_host"], value["bootstrap_room"]) == ("2.2.2.2", 0)
    assert sent(Dialect.NATIVE, Wanted(("x",), half=True, room=3))["bootstrap_room"] == 3
    assert "bootstrap_host" not in sent(Dialect.CHAT, Wanted(("x",)))


def test_one_half_of_a_pair_is_never_given_a_prompt_that_could_be_cut_in_chunks() -> None:
    value = sent(Dialect.NATIVE, Wanted(("a long conversation " * 1000, "of", "many turns"), half=True))
    assert value["input_ids"] == [0] and "text" not in value, "a chunk of a request without a peer ends 0.5.15"


def test_an_empty_answer_in_a_conversation_is_still_a_message() -> None:
    messages = sent(Dialect.CHAT, Wanted(("a", "", "b")))["messages"]
    assert isinstance(messages, list) and messages[1]["content"] == "-"


def test_a_question_holds_its_word_and_so_many_others() -> None:
    assert question_of("qzx").endswith("Repeat the word qzx and nothing else.\nqzx\nqzx\n")
    assert len(question_of("qzx", 45).split("\n")[0].split()) == 45


@pytest.mark.parametrize(
    ("body", "text", "tokens"),
    [
        (
            b'{"text":" a b","output_ids":[1,2],"meta_info":{"completion_tokens":2,"finish_reason":{"type":"length"}}}',
            " a b",
            2,
        ),
        (b'{"choices":[{"index":0,"text":" hi","finish_reason":"length"}],"usage":{"completion_tokens":5}}', " hi", 5),
        (b'{"choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}', "hi", None),
        (b'{"choices":[{"message":{"content":null,"reasoning_content":"hm"}}]}', "hm", None),
        (b'{"text":"","meta_info":{"completion_tokens":1}}', "", 1),
    ],
)
def test_answers_that_came_whole(body: bytes, text: str, tokens: int | None) -> None:
    said = read_whole(body)
    assert (said.text, said.tokens, said.error, said.ended) == (text, tokens, None, True)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"<html>", "no JSON object"),
        (b"[]", "no JSON object"),
        (b'{"object":"error","message":"KVTransferError","code":500}', "KVTransferError"),
        (b'{"error":{"code":"decode_error","message":"no decode"}}', "decode_error: no decode"),
        (b'{"error":"Unauthorized"}', "Unauthorized"),
        (b'{"usage":{}}', "neither choices nor text"),
    ],
)
def test_answers_that_are_none(body: bytes, words: str) -> None:
    assert words in (read_whole(body).error or "")


def streamed(*events: str, cut: int = 7) -> Stream:
    """A stream fed in pieces of ``cut`` bytes, each a second after the one before."""
    data = "".join(f"data: {event}\n\n" for event in events).encode()
    stream = Stream()
    for at, start in enumerate(range(0, len(data), cut)):
        stream.feed(data[start : start + cut], float(at))
    return stream


def test_a_chat_stream() -> None:
    stream = streamed(
        '{"choices":[{"delta":{"role":"assistant","content":""}}]}',
        '{"choices":[{"delta":{"content":"he"}}]}',
        '{"choices":[{"delta":{"content":"y"},"finish_reason":"stop"}]}',
        "[DONE]",
    )
    assert (stream.end().text, stream.end().tokens, stream.end().ended, len(stream.pieces)) == ("hey", 2, True, 2)
    assert stream.pieces == sorted(stream.pieces)


@pytest.mark.parametrize(
    "events", [('{"text":"a"}', '{"text":"ab"}', '{"text":"abc"}'), ('{"text":"a"}', '{"text":"bc"}')]
)
def test_a_native_stream_repeats_its_text_or_does_not(events: tuple[str, ...]) -> None:
    stream = streamed(*events, "[DONE]")
    assert (stream.end().text, len(stream.pieces)) == ("abc", len(events))


def test_tokens_as_the_server_counts_them_go_before_pieces() -> None:
    stream = streamed('{"choices":[{"text":"a b c"}]}', '{"choices":[],"usage":{"completion_tokens":3}}', "[DONE]")
    assert stream.end().tokens == 3


def test_a_stream_that_does_not_say_that_it_is_over() -> None:
    assert not streamed('{"choices":[{"text":"a"}]}').end().ended
    assert streamed('{"choices":[{"text":"a","finish_reason":"length"}]}').end().ended
    assert streamed('{"text":"a","meta_info":{"finish_reason":{"type":"length"}}}').end().ended


@pytest.mark.parametrize(
    "event",
    [
        '{"choices":[{"delta":{"content":""},"finish_reason":"abort"}]}',
        '{"choices":[{"text":"","finish_reason":"error"}]}',
        '{"text":"a","meta_info":{"finish_reason":{"type":"abort","message":"KV transfer failed"}}}',
    ],
)
def test_a_request_that_the_engine_gave_up_is_no_answer(event: str) -> None:
    assert "the engine gave it up (finish_reason" in (streamed(event, "[DONE]").end().error or "")
    assert "the engine gave it up (finish_reason" in (read_whole(event.encode()).error or "")


def test_a_stream_asks_for_its_count_of_tokens() -> None:
    for dialect in (Dialect.CHAT, Dialect.TEXT):
        value = json.loads(body_of(dialect, Wanted(("a",), stream=True)))
        assert value["stream_options"] == {"include_usage": True}
        assert "stream_options" not in json.loads(body_of(dialect, Wanted(("a",))))
    assert "stream_options" not in json.loads(body_of(Dialect.NATIVE, Wanted(("a",), stream=True)))


def test_an_error_inside_a_stream() -> None:
    said = streamed(
        '{"choices":[{"text":"a"}]}', '{"error":{"message":"Aborted by AbortReq.","code":500}}', "[DONE]"
    ).end()
    assert said.error == "Aborted by AbortReq."
    assert "no JSON" in (streamed("{broken", "[DONE]").end().error or "")


def test_comments_and_line_ends_between_events() -> None:
    stream = Stream()
    stream.feed(b': ping\r\n\r\nevent: x\r\ndata: {"choices":[{"text":"a"}]}\r\n\r\ndata:[DONE]\r\n\r\n', 0.0)
    assert (stream.end().text, stream.end().ended) == ("a", True)


def test_the_first_model_of_a_list() -> None:
    assert model_of(b'{"object":"list","data":[{"id":"tiny"},{"id":"other"}]}') == "tiny"
    for body in (b"", b"{}", b'{"data":[]}', b'{"data":[{}]}', b'{"data":["x"]}', b'{"data":[{"id":""}]}'):
        assert model_of(body) is None


def test_what_an_error_answer_says() -> None:
    assert told_error(b'{"detail":"Not Found"}') == "Not Found"
    assert told_error(b"upstream connect error\nor disconnect") == "upstream connect error or disconnect"
    assert told_error(b"<html><body>502</body></html>") is None
    assert told_error(b"") is None
