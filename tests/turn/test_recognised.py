"""A request that is recognised by its beginning: only while what made that beginning equal still holds, and read whole where needed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.conversation import reading
from gateway.settings import Settings
from tests.gateways import Api, running_gateway, running_simulator


def user(text):
    return {"role": "user", "content": text}


def texts(seen):
    return [part["text"] for item in seen.answer["output"] for part in item.get("content") or ()]


async def test_a_stricter_level_counts_for_conversations_that_are_known_already():
    """After a reload from lenient to exact a history without its reasoning is sent in full, as plain HTTP would."""
    turn = {"model": "gpt-5", "store": False, "include": ["reasoning.encrypted_content"]}
    async with running_simulator() as upstream:
        async with (
            running_gateway(upstream.url, match="lenient") as running,
            Api(running.url) as through,
            Api(upstream.url) as direct,
        ):
            history, modes = [user("a")], []
            for number in range(3):
                seen = await through.create({**turn, "input": history})
                modes.append(seen.mode)
                history += [item for item in seen.answer["output"] if item["type"] != "reasoning"]
                history.append(user(f"n{number}"))
            running.gateway.reconfigure(
                replace(Settings(), upstream=upstream.url, profile="openai", match="exact")
            )
            seen = await through.create({**turn, "input": history})
            expected = await direct.create({**turn, "input": history})

    assert modes == ["full", "delta", "delta"]
    assert seen.mode == "full"
    assert texts(seen) == texts(expected)


@pytest.mark.parametrize("compact", [True, False], ids=["usual spelling", "odd spelling"])
async def test_a_long_recognised_history_is_sent_whole_when_it_must_be(compact, monkeypatch):
    """More items than one turn may read anew, recognised turn by turn, still go in full when the model changes."""
    monkeypatch.setattr(reading, "_MOST_NEW", 40)
    separators = (",", ":") if compact else (",\n", ":")
    async with running_simulator() as upstream:
        async with running_gateway(upstream.url) as running, Api(running.url) as api:
            history, answers = [], []
            for count, model in ((30, "gpt-5"), (30, "gpt-5"), (1, "gpt-5-mini")):
                history += [user(f"u{len(history) + n}") for n in range(count)]
                body = {"model": model, "store": False, "input": history}
                answers.append(await api.create(data=json.dumps(body, separators=separators).encode()))
                history += answers[-1].answer["output"]

    assert [(seen.status, seen.mode) for seen in answers] == [(200, "full"), (200, "delta"), (200, "full")]
    assert answers[-1].reason == "settings_changed"
