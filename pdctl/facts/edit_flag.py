"""One option of a script's launch command: set, added or taken out, wherever its words stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.facts.edit_launch import Launch, Token
from pdctl.facts.edit_text import Refused, indentation, quoted, words_in
from pdctl.facts.flags import VLLM, canonical
from pdctl.facts.options import REPEATED

Span = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Option:
    """An option as written: its token, the tokens of its values, and the value after ``=`` where it is written so."""

    token: Token
    values: tuple[Token, ...]
    joined: str | None
    spelt: str


def options_of(launch: Launch) -> list[Option]:
    """Every option of the launch command, in order."""
    out: list[tuple[Token, str, str | None, list[Token]]] = []
    for token in launch.arguments:
        shown = _head(token)
        if _is_option(shown, launch.launcher):
            name, equals, value = shown.partition("=")
            out.append((token, name, value if equals else None, []))
        elif out and not _adds_options(token, out[-1]):
            out[-1][3].append(token)
    return [Option(token, tuple(values), joined, spelt) for token, spelt, joined, values in out]


def _head(token: Token) -> str:
    return token.text if token.text is not None else token.made_of.strip("\"'")


def _is_option(word: str, launcher: str) -> bool:
    if word.startswith("--"):
        return len(word) > 2 and word[2] not in "$`"
    return launcher == VLLM and len(word) > 1 and word[0] == "-" and word[1].isalpha()


def _adds_options(token: Token, before: tuple[Token, str, str | None, list[Token]]) -> bool:
    """Whether a word that cannot be known stands for options of its own (``"$@"``, ``$EXTRA_ARGS``) and not for the
    value of the option before it."""
    if token.text is not None:
        return False
    if token.made_of.strip('"').startswith(("$@", "$*", "${@", "${*", "${")) and "[" in token.made_of:
        return True
    return "@" in token.made_of or "*" in token.made_of or before[2] is not None or bool(before[3])


# --- set -----------------------------------------------------------------------------------------------------------


def flag_edit(launch: Launch, name: str, values: Sequence[str]) -> list[Span]:
    """The replacements that give an option these values, or add it. None are needed where it has them. Raises
    ``Refused``."""
    option = _only(launch, name)
    if option is None:
        return _added(launch, name, values)
    if option.joined is not None:
        return _rejoined(option, values, launch.assigned)
    if not values:
        if option.values:
            raise Refused(f"{option.spelt} has a value (line {option.token.line})", "Give the new one, or --remove.")
        return []
    written = [_word(value, option.token, old) for value, old in _paired(values, option.values)]
    if not option.values:
        return [(option.token.end, option.token.end, " " + " ".join(written))]
    first, last = option.values[0], option.values[-1]
    if len(values) == len(option.values):
        return [(old.start, old.end, new) for old, new in zip(option.values, written, strict=True)]
    return [(first.start, last.end, " ".join(written))]


def _paired(values: Sequence[str], old: Sequence[Token]) -> list[tuple[str, Token | None]]:
    return [(value, old[index] if index < len(old) else None) for index, value in enumerate(values)]


def _rejoined(option: Option, values: Sequence[str], assigned: frozenset[str]) -> list[Span]:
    if not values:
        raise Refused(f"{option.spelt} has a value (line {option.token.line})", "Give the new one, or --remove.")
    token = option.token
    if token.text is None:
        _refuse_unknown(option, token, assigned)
    if len(values) > 1:
        rest = " ".join(_word(value, token, None) for value in values)
        return [(token.start, option.values[-1].end if option.values else token.end, f"{option.spelt} {rest}")]
    if option.values:
        raise Refused(f"{option.spelt}= is followed by further words (line {token.line})")
    quotes = token.made_of[:1] if token.made_of[:1] in "\"'" else ""
    if quotes or token.is_split:
        return [(token.start, token.end, _word(f"{option.spelt}={values[0]}", token, token))]
    inner = token.made_of.partition("=")[2][:1]
    style = inner if inner in ("'", '"') else ""
    written = quoted(values[0], token.region.forbidden, style)
    return [(token.start, token.end, f"{token.made_of.partition('=')[0]}={written}")]


def _word(value: str, beside: Token, old: Token | None) -> str:
    """A value as it is written where the option stands."""
    if beside.is_split:
        if not value or any(c in value for c in " \t*?[]{}()'\"\\$`&|;<>~#!"):
            raise Refused(
                f"{value!r} would be split: the options stand in the text of {beside.holder} (line {beside.line})",
                "Turn that variable into an array, or edit the script by hand.",
            )
        if any(c in value for c in beside.region.forbidden):
            raise Refused(f"{value!r} cannot be written inside the quotes of line {beside.line}")
        return value
    style = old.made_of[:1] if old is not None and old.made_of[:1] in "\"'" else ""
    return quoted(value, beside.region.forbidden, style)


# --- find ----------------------------------------------------------------------------------------------------------


def _only(launch: Launch, name: str) -> Option | None:
    """The option of that name, None where it is not there. Raises ``Refused`` where it cannot be edited safely."""
    wanted = canonical(name, launch.launcher)
    found = [o for o in options_of(launch) if canonical(o.spelt, launch.launcher) == wanted]
    if len(found) > 1:
        lines = ", ".join(str(o.token.line) for o in found)
        more = "it means every one of them" if wanted in REPEATED else "the last one counts"
        raise Refused(f"{name} is given {len(found)} times (lines {lines}): {more}", "Edit the script by hand.")
    if not found:
        return None
    option = found[0]
    for token in (option.token, *option.values):
        if token.why is not None:
            raise Refused(f"{option.spelt} is built by a condition: it stands {token.why} (line {token.line})")
    for value in option.values:
        if value.text is None:
            _refuse_unknown(option, value, launch.assigned)
    holders = {(t.holder, t.region.base) for t in (option.token, *option.values)}
    if len(holders) > 1:
        raise Refused(f"{option.spelt} and its value stand in different places (line {option.token.line})")
    return option


def _refuse_unknown(option: Option, token: Token, assigned: frozenset[str]) -> None:
    shown = token.made_of.partition("=")[2] if option.joined is not None else token.made_of
    name = shown.strip('"').lstrip("$").strip("{}").partition(":")[0]
    if shown.strip('"').startswith("$(") or "`" in shown:
        raise Refused(f"the value of {option.spelt} is made by {shown} when the script runs (line {token.line})")
    hint = f"Set the variable: pdctl script set INSTANCE {name}=VALUE" if name in assigned else ""
    raise Refused(f"the value of {option.spelt} comes from {shown} (line {token.line})", hint)


# --- add -----------------------------------------------------------------------------------------------------------


def _added(launch: Launch, name: str, values: Sequence[str]) -> list[Span]:
    """A new option: in the array that holds the others, where the command names none itself; else at its end."""
    direct = [t for t in launch.arguments if not t.holder and t.text is not None and t.text.startswith("-")]
    arrays = [t for t in launch.arguments if t.holder and not t.is_split and t.why is None]
    if not direct and arrays:
        return [_at_end_of_array(arrays[-1], _written(name, values, launch, arrays[-1]))]
    last = words_in(launch.node)[-1]
    region = launch.region
    at = region.base + last.end_byte
    beside = Token(None, at, at, at, launch.line, region)
    text = _written(name, values, launch, beside)
    if region.raw.count(b"\n", launch.node.start_byte, last.start_byte):
        return [(at, at, f" \\\n{indentation(region.raw, last.start_byte)}{text}")]
    return [(at, at, f" {text}")]


def _written(name: str, values: Sequence[str], launch: Launch, beside: Token) -> str:
    """``--x v``, or ``--x=v`` where the script writes all of its options so."""
    known = [o for o in options_of(launch) if o.values or o.joined is not None]
    words = [_word(value, beside, None) for value in values]
    if len(words) == 1 and known and all(o.joined is not None for o in known):
        return f"{name}={words[0]}"
    return " ".join([name, *words])


def _at_end_of_array(last: Token, text: str) -> Span:
    """After the last element; on a line of its own where the elements have theirs."""
    raw, at = last.region.raw, last.end - last.region.base
    end = raw.find(b"\n", at)
    rest = raw[at : end if end >= 0 else len(raw)].strip()
    if end >= 0 and (not rest or rest.startswith(b"#")):
        place = last.region.base + end
        return (place, place, f"\n{indentation(raw, last.start - last.region.base)}{text}")
    return (last.end, last.end, f" {text}")


# --- take out ------------------------------------------------------------------------------------------------------


def flag_removal(launch: Launch, name: str) -> list[Span]:
    """The range that an option and its values take, with what parts them from the word before. Raises ``Refused``."""
    option = _only(launch, name)
    if option is None:
        raise Refused(f"the script's launch command has no {name}")
    last = option.values[-1] if option.values else option.token
    return [(option.token.gap, last.end, "")]
