"""``python -m tests.fuzz TARGET --minutes 10``: one target under atheris, from its seeds and what earlier runs found.

New inputs are kept in ``.fuzz/TARGET``; one that breaks something is written to ``.fuzz`` and named in the output. The same file
as argument plays it again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import logging
import sys
from pathlib import Path

import atheris
import structlog

TARGETS = ("bodies", "exchanges", "conversations", "faces")
KEPT = Path(".fuzz")
WORDS = (
    '"type":"', '"response":{', '"id":"', '"output":[', '"status":"', "completed", "failed", "incomplete", "response.", "created",
    "in_progress", "response.done", '"error":{', '"code":"', "previous_response_not_found", "websocket_connection_limit_reached",
    '"sequence_number":', '"output_index":', '"item":{', '"stream_id":', "output_item.done", "output_text.delta", "keepalive", "codex.",
    '"previous_response_id":', '"input":[', '"headers":{', '"status":429', "\\n", "\\\\ud800",
)  # fmt: skip


def main():
    """Fuzz one target until its time is over or something breaks."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("inputs", nargs="*", type=Path, help="play only these files")
    parser.add_argument("--minutes", type=float, default=10.0)
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with atheris.instrument_imports(include=["gateway"], exclude=["gateway.simulator"]):
        target = importlib.import_module(f"tests.fuzz.{chosen.target}")
    if chosen.inputs:
        for one in chosen.inputs:
            target.check(one.read_bytes())
        return
    corpus = KEPT / chosen.target
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / hashlib.sha256(seed).hexdigest()[:20]).write_bytes(seed)
    words = KEPT / "words"
    words.write_text(
        "".join('"{}"\n'.format("".join(f"\\x{byte:02x}" for byte in word.encode())) for word in WORDS)
    )
    limits = ["-timeout=20", "-rss_limit_mb=1024", "-max_len=4096", "-print_final_stats=1", "-verbosity=0"]
    time = f"-max_total_time={round(chosen.minutes * 60)}"
    places = [f"-artifact_prefix={KEPT}/{chosen.target}-", f"-dict={words}", str(corpus)]
    atheris.Setup([sys.argv[0], *limits, time, *places], target.check)
    atheris.Fuzz()


main()
