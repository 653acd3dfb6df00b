"""Recorded conversations of real clients: what each sent, turn by turn, and what it had been answered."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backports import zstd

_TRACES = Path(__file__).parent.parent / "traces"
_NOT_SENT = frozenset({"host", "content-length", "authorization", "content-encoding"})


@dataclass(frozen=True)
class Turn:
    """One recorded ``POST /v1/responses``."""

    row: dict[str, Any]

    @property
    def body(self):
        return self.row["body"]

    @property
    def output(self):
        """The items that it was answered with."""
        return self.row["reply"]["output"]

    @property
    def headers(self):
        """The client's own headers, but for the key and what describes one connection or one body."""
        kept = {name: value for name, value in self.row["headers"].items() if name.lower() not in _NOT_SENT}
        if self.row["content_encoding"]:
            kept["Content-Encoding"] = self.row["content_encoding"]
        return kept

    @property
    def data(self):
        """The body as it was sent: compact JSON in raw UTF-8, compressed where the client did that."""
        text = json.dumps(self.body, ensure_ascii=False, separators=(",", ":")).encode()
        return zstd.compress(text) if self.row["content_encoding"] == "zstd" else text

    def new_items(self, before, *, without_reasoning):
        """What this turn sends beyond ``before``, the turn it goes on from: the items behind that one's input and answer."""
        answer = [item for item in before.output if not (without_reasoning and item["type"] == "reasoning")]
        return self.body["input"][len(before.body["input"]) + len(answer) :]


def trace_names():
    """All recorded clients, by file name without ending."""
    return sorted(path.stem for path in _TRACES.glob("*.jsonl"))


def turns_of(name):
    """The turns of one trace in order; requests for anything else are left out."""
    rows = [json.loads(line) for line in (_TRACES / f"{name}.jsonl").read_text("utf-8").splitlines()]
    turns = [Turn(row) for row in rows if row["method"] == "POST" and row["path"] == "/v1/responses"]
    assert len(turns) >= 3
    return turns
