"""Doing what one step says: the words to run, a person's consent where it takes one, what came of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, islice

from pdctl.model.finding import Status
from pdctl.model.playbook import Result, Step, Wait
from pdctl.plans.playbook_commands import COMMANDS, Consent, consent_for, faults_of_words, filled, subjects_of
from pdctl.plans.playbook_course import JUDGED, gone
from pdctl.plans.playbook_words import seconds_of
from pdctl.reach.clock import Clock
from pdctl.reach.own import Ran
from pdctl.runbook.did import LIMIT_S, CutOff, Did, did_of, ended_well, shown_command
from pdctl.runbook.order import Desk, Order

FRESH_S = 30.0  # a plan that was shown so lately is not shown again
Runs = Callable[..., Ran]
Options = Callable[[str], frozenset[str]]


class Hands:
    """Runs the commands of one run's steps. ``options`` tells which options a command knows, ``note`` records an event
    of its own (a preview, a consent), ``keep`` takes each line of what commands print as it comes, ``say`` makes a
    foreign text one that may be shown: a playbook's words are anybody's, and must not paint over what is agreed to."""

    def __init__(
        self, order: Order, desk: Desk, *, runs: Callable[..., Ran], options: Options, clock: Clock,
        note: Callable[[dict[str, object], str], None], keep: Callable[[str, str], None],
        say: Callable[[str], str],
    ) -> None:  # fmt: skip
        self.order = order
        self.desk = desk
        self.runs = runs
        self.options = options
        self.clock = clock
        self.note = note
        self.keep = keep
        self.say = say
        self._agreed: set[tuple[str, ...]] = set()
        self._shown: tuple[tuple[str, ...], float] = ((), 0.0)
        self._kept = 0

    def do(self, step: Step, subjects: Sequence[str], number: int) -> Did:
        """Runs the step's command, for as long as its wait says."""
        try:
            words = self._shortened(self._filled(step, subjects))
        except ValueError as error:
            return Did(Result(why=str(error)))
        if done := self._done_meanwhile(step, words):
            return done
        words = self._gone_on(step, words)
        shown = shown_command(self._whole(words))
        consent = consent_for(words)
        if why := self._impossible(words[0]) or self._refused(step, words, consent):
            return Did(Result(why=why), shown)
        self._kept = number
        if step.wait and consent is None:
            return self._waiting(step, words)
        return self._once((*words, *consent.agreed) if consent else words, changes=consent is not None)

    # --- words --------------------------------------------------------------------------------------------------------

    def _filled(self, step: Step, subjects: Sequence[str]) -> tuple[str, ...]:
        """The step's words with every place filled. Raises ValueError that says why they are no words to run."""
        try:
            words = filled(step.run, subjects_of(subjects, self.order.target.instances), self.order.given)
        except KeyError as error:
            raise ValueError(f"no {error.args[0]} was given (--set {error.args[0]}=...)") from None
        except ValueError as error:
            raise ValueError(f"it cannot be run with what was given: {error}") from None
        if fault := faults_of_words(words):
            raise ValueError(f"it cannot be run with what was given: {fault[0]}")
        return words

    def _was_cut_off(self, step: Step, words: tuple[str, ...]) -> CutOff | None:
        cut = self.order.cut_off
        can = COMMANDS[words[0]].goes_on and consent_for(words) is not None and not self.order.target.recording
        return cut if cut is not None and cut.step == step.name and can else None

    def _done_meanwhile(self, step: Step, words: tuple[str, ...]) -> Did | None:
        """What came of this step's change where it went on without the run that began it, and came to a good end."""
        cut = self._was_cut_off(step, words)
        if cut is None:
            return None
        asked = ("history", "--cluster", self.order.target.cluster, "-n", "1", "-o", "json")
        run = ended_well(self._run(asked, LIMIT_S, lambda _: None).output, cut.at)
        if run is None:
            return None
        shown = shown_command(("history", run))
        self._show(f"  it came to its end meanwhile: {shown}")
        return Did(Result(0, Status.OK), shown)

    def _gone_on(self, step: Step, words: tuple[str, ...]) -> tuple[str, ...]:
        """The words that go on with this step's change where it was cut off and something is left of it, else these:
        what was restarted is not restarted again."""
        going_on = COMMANDS[words[0]].goes_on
        consent = consent_for(going_on) if self._was_cut_off(step, words) is not None else None
        if consent is None or not self.order.attended:
            return words
        ran = self._run(self._whole(consent.preview), LIMIT_S, lambda _: None)
        return going_on if ran.exit in JUDGED else words

    def _shortened(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """The words with no look longer than the order allows."""
        most = self.order.look_s
        if most is None or COMMANDS[words[0]].always:
            return words
        out = list(words)
        for place, word in enumerate(out):
            if word == "--for" and place + 1 < len(out):
                out[place + 1] = _least(out[place + 1], most)
            elif word.startswith("--for="):
                out[place] = f"--for={_least(word.removeprefix('--for='), most)}"
        return tuple(out)

    def _whole(self, words: Sequence[str]) -> list[str]:
        """The words with the run's target, as far as the command knows it."""
        known = self.options(words[0])
        target = [word for name, value in self.order.target.options if name in known for word in (name, value)]
        ascii_only = ["--ascii"] if self.order.ascii and "--ascii" in known else []
        beside = [value for name, value in self.order.target.options if name == "--from"]
        return [*words, *(beside if COMMANDS[words[0]].beside else ()), *target, *ascii_only]

    def _recorded(self, words: Sequence[str]) -> list[str]:
        """Where the raw answers of this look are kept: a place of its own, as a step may look again and again."""
        record = self.order.record
        if record is None or self.order.target.recording or "--record" not in self.options(words[0]):
            return []
        place = record / f"{self._kept:03d}-{words[0]}"
        again = (record / f"{place.name}-{n}" for n in count(2))
        return ["--record", str(next(path for path in (place, *islice(again, 10_000)) if not path.exists()))]

    def _impossible(self, command: str) -> str:
        """Why the command can't be run on this target; empty where it can."""
        known = self.options(command)
        if COMMANDS[command].beside:
            return ""
        if self.order.target.recording and "--from" not in known and "--config" in known:
            return f"pdctl {command} needs a live cluster, and this is a recording"
        return ""

    # --- consent ------------------------------------------------------------------------------------------------------

    def _refused(self, step: Step, words: tuple[str, ...], consent: Consent | None) -> str:
        """Asks a person where it takes one; why it is not run, empty where it may be."""
        if consent is None:
            return ""
        if step.wait:
            return f"{consent.why}, and a wait would repeat it"
        if self.order.target.recording:
            return f"{consent.why}, and this is a rehearsal on a recording"
        if not self.order.attended:
            return f"{consent.why}: nobody is there to agree"
        if words in self._agreed:
            return ""
        if consent.preview and (why := self._previewed(step, consent.preview)):
            return why
        answer = self._consent(words, consent)
        agreed, always = _agreement(answer, consent, self.order.target.cluster)
        self.note(
            {"event": "consent", "step": step.name, "command": shown_command(words), "agreed": agreed, "said": answer},
            "",
        )
        if always:
            self._agreed.add(words)
        return "" if agreed else "no consent was given"

    def _consent(self, words: tuple[str, ...], consent: Consent) -> str | None:
        cluster = self.order.target.cluster
        self._show("", shown_command(words), f"  {consent.why}.")
        if consent.named:
            return self.desk.ask(f"Type {cluster} to do it on {cluster}, anything else to leave it: ")
        return self.desk.ask(f"Do it on {cluster}? y (yes), a (yes, each time in this run), anything else leaves it: ")

    def _previewed(self, step: Step, words: tuple[str, ...]) -> str:
        """Shows what would be done, unless that was the step before. Why it can't be, empty where it can."""
        seen, when = self._shown
        if words == seen and self.clock.now() - when < FRESH_S:
            return ""
        self._begin(shown_command(self._whole(words)))
        ran = self._run(self._whole(words), LIMIT_S, lambda line: self._line(line, always=True))
        self.note(
            {"event": "preview", "step": step.name, "command": shown_command(words), "exit": ran.exit}, ran.output
        )
        if ran.interrupted:
            raise KeyboardInterrupt
        return "" if ran.exit in JUDGED else f"what it would do could not be told (exit {ran.exit})"

    # --- running ------------------------------------------------------------------------------------------------------

    def _once(self, words: Sequence[str], *, changes: bool = False) -> Did:
        whole = [*self._whole(words), *self._recorded(words)]
        shown = shown_command(whole)
        self._begin(shown)
        ran = self._run(whole, None if changes else LIMIT_S, self._line)
        self._shown = (tuple(words), self.clock.now()) if ran.exit in JUDGED else ((), 0.0)
        return did_of(ran, shown, 1)

    def _waiting(self, step: Step, words: Sequence[str]) -> Did:
        """Looks until the finding is gone or there, or the time is over. A recording is looked at once."""
        wait = step.wait
        assert wait is not None
        self._begin(shown_command(self._whole(words)))
        most = min(wait.at_most, self.order.look_s or wait.at_most)
        until, looks = self.clock.now() + most, 0
        while True:
            looks += 1
            lines: list[str] = []
            whole = [*self._whole(words), *self._recorded(words)]
            did = did_of(self._run(whole, LIMIT_S, lines.append), shown_command(whole), looks)
            met = gone(did.result, wait.gone) if wait.gone else bool(did.result.names().intersection(wait.there))
            over = self.order.target.recording or self.clock.now() + wait.every >= until
            if met or over or did.result.interrupted or did.result.exit not in JUDGED:
                for line in lines:
                    self._line(line)
                return did if met else replace(did, in_vain=_in_vain(wait, self.order.target.recording))
            progress = _progress(did.result, max(until - self.clock.now(), 0.0))
            self._show(f"  {progress}")
            self.keep("line", progress)
            self.clock.sleep(wait.every)

    def _show(self, *lines: str) -> None:
        self.desk.show([self.say(line) for line in lines])

    def _begin(self, shown: str) -> None:
        self._show(f"$ {shown}")
        self.keep("command", shown)

    def _line(self, line: str, always: bool = False) -> None:
        """A line that a command printed: ``always`` shown, however little of that is wanted."""
        if always:
            self.desk.show([line])
        else:
            self.desk.output(line)
        self.keep("line", line)

    def _run(self, words: Sequence[str], limit: float | None, on_line: Callable[[str], None]) -> Ran:
        return self.runs(words, on_line=on_line, limit=limit)


def _agreement(answer: str | None, consent: Consent, cluster: str) -> tuple[bool, bool]:
    """Whether that is a yes, and whether for the rest of the run."""
    said = (answer or "").strip()
    if consent.named:
        return said == cluster, False
    return said.lower() in ("y", "yes", "a", "all"), said.lower() in ("a", "all")


def _progress(result: Result, left: float) -> str:
    names = ", ".join(sorted(result.names())) or f"nothing found, {result.status or 'no report'}"
    return f"{names}; looking again, for {left:.0f} s at most"


def _least(text: str, most: float) -> str:
    seconds = seconds_of(text)
    return text if seconds is not None and seconds <= most else f"{most:g}s"


def _in_vain(wait: Wait, recording: bool) -> str:
    """What did not come to be while it was waited for."""
    what = f"{' and '.join(wait.gone)} to be gone" if wait.gone else f"{' or '.join(wait.there)} to be there"
    return f"{what}; a recording does not change" if recording else what
