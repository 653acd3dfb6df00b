"""Numbers and words as people read them in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from gateway.stats import Field


def size(count: float) -> str:
    """Bytes."""
    for unit in ("B", "KB", "MB"):
        if abs(count) < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def span(seconds: float) -> str:
    """A long time."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def ms(value: float | None) -> str:
    """A duration given in milliseconds."""
    if value is None:
        return "-"
    return f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.1f} s"


def share(part: float, whole: float) -> str:
    """A part in percent."""
    return f"{part / whole:.0%}" if whole else "-"


class ExplainedCommand(click.Command):
    """A command whose help says what a rising value of each of ``explained`` means."""

    explained: Mapping[str, Field] = {}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The sentences, behind the options."""
        super().format_epilog(ctx, formatter)
        with formatter.section("What each value is, and what it means when it rises"):
            formatter.write_dl(
                [(name, f"{text.meaning} Rising: {text.rising}") for name, text in self.explained.items()]
            )


def explaining(fields: Mapping[str, Field]) -> type[ExplainedCommand]:
    """The class for a command that shows these fields."""

    class Explaining(ExplainedCommand):
        explained = fields

    return Explaining


def counts(group: Mapping[str, Any], *names: str) -> str:
    """Some counters of a group, with their names."""
    return ", ".join(f"{group.get(name, 0)} {name.replace('_', ' ')}" for name in names)
