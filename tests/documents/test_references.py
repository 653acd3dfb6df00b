"""What documents point to is there: links, files, names in files, settings, words and flags."""

import ast
import importlib
import re
from dataclasses import fields

import click
import pytest

from gateway.admin import METRICS
from gateway.cli import COMMANDS
from gateway.settings import Settings
from gateway.stats import CLOSED_TEXTS, FIELDS, MODELS, REASON_TEXTS, RECOVERY_TEXTS, TURN_FIELDS
from gateway.upstream.remedies import REFUSED_TEXTS
from tests.documents.answers import answers, modules
from tests.documents.places import INSIDE, ROOT, WRITTEN

API = {
    "previous_response_id", "item_reference", "base_url", "connection_lost", "forbidden_host", "forbidden_origin",
    "in_flight", "session_id",
}  # fmt: skip
"""Words of the API, and those of files that are no settings."""

FOREIGN = {"--ulimit"}
"""Flags of other programs that stand by themselves."""

EACH = pytest.mark.parametrize("place", WRITTEN, ids=lambda path: str(path.relative_to(ROOT)))


def prose(place):
    """A document without its blocks."""
    return re.sub(r"(?ms)^```.*?^```$", "", place.read_text())


def spans(place):
    """Its spans of code."""
    return re.findall(r"`([^`\n]+)`", prose(place))


def anchors(text):
    """The anchors that GitHub makes of headings."""
    heads = re.findall(r"(?m)^#+ (.*)$", text)
    return {re.sub(r"[^a-z0-9 _-]", "", head.lower()).replace(" ", "-") for head in heads}


@EACH
def test_links_lead_somewhere(place):
    """To a file of this repository, and to a heading in it."""
    for target in re.findall(r"\]\(([^)]+)\)", prose(place)):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        there = (place.parent / name).resolve() if name else place
        assert there.exists(), target
        assert not anchor or anchor in anchors(there.read_text()), target


@EACH
def test_files_and_names_in_them_are_there(place):
    """``path`` exists, and ``path:name`` defines that name."""
    for span in spans(place):
        found = re.fullmatch(r"((?:gateway|tests|config|deploy)/[\w./-]+?)(?::(\w+))?", span)
        if not found or "NAME" in span:
            continue
        there = ROOT / found[1]
        assert there.exists(), span
        if found[2]:
            defined = rf"(?m)^\s*(?:async def|def|class) {found[2]}\b|^{found[2]}\b.*="
            assert re.search(defined, there.read_text()), span


def test_the_guides_name_what_to_change():
    """The document that leads through the code names places in it."""
    assert len([span for span in spans(INSIDE) if re.fullmatch(r"[\w/]+\.py:\w+", span)]) > 30


def logged():
    """The name of every line of the log."""
    calls = [
        node
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.args
    ]
    named = [c.args[0] for c in calls if getattr(c.func, "attr", "") in ("debug", "info", "warning", "error")]
    return {first.value for first in named if isinstance(first, ast.Constant)}


def known():
    """Every word that has a meaning here."""
    words = {setting.name for setting in fields(Settings)} | {
        *METRICS,
        *MODELS,
        *TURN_FIELDS,
        *API,
        *logged(),
    }
    words |= {part for path in FIELDS for part in path.replace("[]", "").split(".")}
    for texts in (REASON_TEXTS, RECOVERY_TEXTS, CLOSED_TEXTS, REFUSED_TEXTS):
        words |= set(texts)
    return words | {answer.code for answer in answers()}


@EACH
def test_words_are_known(place):
    """A setting, field, metric, reason or code in a document is one of the code."""
    if place == INSIDE:
        pytest.skip("names of the code are checked with their files")
    words = {s.partition(" ")[0] for s in spans(place) if re.fullmatch(r"[a-z]+(_[a-z]+)+( = .*)?", s)}
    assert words - known() == set()


def flags():
    """Every flag of every command."""
    found = {"--version", "--help"}
    for name in COMMANDS:
        command = importlib.import_module(f"gateway.cli.{name}").command
        found |= {
            o for p in command.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)
        }
    return found


@EACH
def test_flags_exist(place):
    """A flag that stands by itself, or behind ``upwire``, is one of ours."""
    ours = [s for s in spans(place) if s.startswith(("--", "upwire "))]
    used = {flag for span in ours for flag in re.findall(r"(?<!\S)--[a-z][a-z-]+", span)}
    assert used - flags() - FOREIGN == set()
