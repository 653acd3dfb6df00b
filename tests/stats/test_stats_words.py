"""Histograms, labels for models, and the sentences that explain every counted word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.conversation.reasons import Reason
from gateway.pool import Closed
from gateway.stats import (
    CLOSED_TEXTS,
    FIELDS,
    MODELS,
    REASON_TEXTS,
    RECOVERY_TEXTS,
    TURN_FIELDS,
    Histogram,
    model_label,
    path_of,
)
from tests.gateways import Api, running_gateway, running_simulator


@pytest.mark.parametrize("texts", [REASON_TEXTS, RECOVERY_TEXTS, CLOSED_TEXTS])
def test_every_word_has_a_meaning_and_a_remedy(texts):
    """Both are sentences, and no two words share a meaning."""
    for text in texts.values():
        assert text.meaning.endswith(".") and text.remedy.endswith(".")
    assert len({text.meaning for text in texts.values()}) == len(texts)


def test_no_word_is_forgotten():
    """The explained words are exactly those that turns and sockets can get."""
    assert set(REASON_TEXTS) == set(Reason)
    assert set(CLOSED_TEXTS) == set(Closed)


@given(st.lists(st.floats(0, 1000)))
def test_a_histogram_loses_nothing(durations):
    """Every duration is counted once, in the bucket whose bound is the first not below it."""
    histogram = Histogram((0.5, 1, 10))
    for duration in durations:
        histogram.add(duration)
    assert histogram.cumulative() == [
        ("0.5", sum(d <= 0.5 for d in durations)),
        ("1", sum(d <= 1 for d in durations)),
        ("10", sum(d <= 10 for d in durations)),
        ("+Inf", len(durations)),
    ]
    assert histogram.total == pytest.approx(sum(durations))


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("gpt-5", "gpt-5"),
        ("gpt-5-2026-08-07", "gpt-5"),
        ("gpt-5-mini-2026-08-07", "gpt-5-mini"),
        ("openai/gpt-5.1-codex-max", "gpt-5.1-codex"),
        ("GPT-5.6-sol", "gpt-5.6"),
        ("o3", "o3"),
        ("qwen3-coder:30b", "qwen"),
        ("gpt-50", "other"),
        ("o32", "other"),
        ("ft:gpt-5:acme::x", "other"),
        ("my-deployment", "other"),
        ("", "other"),
    ],
)
def test_a_model_is_shown_by_its_family(model, label):
    """Variants, dates and a provider's prefix fall under their family; all else is other."""
    assert model_label(model) == label


@given(st.text(max_size=200) | st.sampled_from(MODELS).flatmap(lambda m: st.text().map(lambda t: m + t)))
def test_labels_of_models_are_a_closed_set(model):
    """No text of a client's becomes a label."""
    assert model_label(model) in MODELS


def paths_of(value, steps=()):
    """The path of every value of the statistics; elements of lists share theirs."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from paths_of(inner, (*steps, name))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from paths_of(value[0], (*steps[:-1], f"{steps[-1]}[]"))
    else:
        yield steps


async def test_every_field_is_explained_and_every_explained_one_is_there(tmp_path):
    """The statistics of a gateway that has served a turn, and knows a label, have exactly the fields that are described."""
    team = tmp_path / "team.toml"
    team.write_text(f'[alice]\nkeys = ["sha256:{"0" * 64}"]\n')
    async with (
        running_simulator() as simulator,
        running_gateway(simulator.url, team_file=str(team)) as gateway,
        Api(gateway.url) as api,
    ):
        await api.create({"model": "gpt-5", "input": "hello", "store": False})
        seen = (await api.get("/../stats")).answer
    assert {path_of(steps) for steps in paths_of(seen)} == set(FIELDS)
    for field in (*FIELDS.values(), *TURN_FIELDS.values()):
        assert field.meaning.endswith(".") and field.rising.endswith(".")
    with pytest.raises(KeyError):
        path_of(("turns", "unknown"))
