"""What config/reference.md says, from the code."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from gateway.admin import METRICS
from gateway.cli.config import toml
from gateway.config import flag_name, variable_name
from gateway.settings import Settings
from gateway.stats import CLOSED_TEXTS, FIELDS, MODELS, REASON_TEXTS, RECOVERY_TEXTS, TURN_FIELDS
from gateway.upstream.remedies import REFUSED_TEXTS

_ROOT = Path(__file__).parents[2]
PLACE = _ROOT / "config" / "reference.md"
SAMPLE = _ROOT / "config" / "upwire.toml"

HEAD = """\
# Reference

Made from the code by `make docs`; a test keeps it equal.

[Settings](#settings) · [Statistics](#statistics) · [Columns of upwire tail](#columns-of-upwire-tail) · [Metrics](#metrics) ·
[Reasons](#reasons) · [Recoveries](#recoveries) · [Why sockets are closed](#why-sockets-are-closed) ·
[Why sockets are refused](#why-sockets-are-refused)
"""


def table(heads, rows):
    """A table; what a cell must not hold is escaped."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def settings():
    """Every setting."""
    rows = []
    for setting in fields(Settings):
        about = setting.metadata
        values = ", ".join(f"`{choice}`" for choice in about["choices"] or ())
        meaning = about["help"] + (f" One of {values}." if values else "")
        reload = "yes" if about["reload"] else "no"
        rows.append(
            [f"`{setting.name}`", f"`{toml({} if about['table'] else setting.default)}`", meaning, reload]
        )
    example = next(iter(fields(Settings))).name
    return (
        f"Each is a key of the file, a flag and a variable: `{example}`, `{flag_name(example)}`, `{variable_name(example)}`. Flags win "
        "over variables, variables over the file. Times are in seconds, sizes in bytes. *Reload*: whether SIGHUP takes a new value "
        "from the file without a restart. `upstreams` stands in the file only.\n\n"
        + table(["setting", "default", "meaning", "reload"], rows)
    )


def statistics():
    """Every field of /stats."""
    rows = [[f"`{path}`", text.meaning, text.rising] for path, text in FIELDS.items()]
    text = "`GET /stats` is one JSON object. Below, `*` stands for each word of a closed set and `[]` for each element of a list.\n\n"
    return text + table(["field", "what it is", "when it rises"], rows)


def columns():
    """The columns of single turns."""
    return table(
        ["column", "what it is", "when it rises"],
        [[f"`{n}`", t.meaning, t.rising] for n, t in TURN_FIELDS.items()],
    )


def metrics():
    """Every metric."""
    rows = [
        [f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels) or "-", text]
        for name, (kind, labels, text) in METRICS.items()
    ]
    return (
        "`GET /metrics`, beside the metrics of the process. No label ever holds what a client sent; `model` is one of: "
        + ", ".join(f"`{model}`" for model in MODELS)
        + ".\n\n"
        + table(["metric", "type", "labels", "meaning"], rows)
    )


def words(head, texts):
    """A closed set of words with meanings and remedies."""
    return table(
        [head, "meaning", "what to do"],
        [[f"`{word}`", text.meaning, text.remedy] for word, text in texts.items()],
    )


def document():
    """The whole file."""
    parts = {
        "Settings": settings(),
        "Statistics": statistics(),
        "Columns of upwire tail": columns(),
        "Metrics": metrics(),
        "Reasons": "Why a turn was not a delta: in `x-upwire-reason`, the log, statistics and metrics.\n\n"
        + words("reason", REASON_TEXTS),
        "Recoveries": "Failures that were hidden from the client.\n\n" + words("recovery", RECOVERY_TEXTS),
        "Why sockets are closed": words("word", CLOSED_TEXTS),
        "Why sockets are refused": words("word", REFUSED_TEXTS),
    }
    return HEAD + "".join(f"\n## {title}\n\n{text}\n" for title, text in parts.items())
