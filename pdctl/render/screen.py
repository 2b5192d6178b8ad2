"""The live screen of `pdctl sample`: the only place that uses rich, and only when there is a terminal to repaint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Draw = Callable[[int, int], list[str]]  # columns and lines of the screen -> its lines


@contextmanager
def live_screen(colour: bool) -> Iterator[Callable[[Draw], None]]:
    """A function that repaints the terminal's other screen when it is called, and never by itself. The screen is
    given back as it was when the block ends, whatever ends it."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(no_color=not colour, highlight=False, markup=False, emoji=False)
    with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as screen:

        def paint(draw: Draw) -> None:
            lines = draw(console.width, console.height)
            screen.update(Text.from_ansi("\n".join(lines), no_wrap=True, overflow="crop", end=""), refresh=True)

        yield paint
