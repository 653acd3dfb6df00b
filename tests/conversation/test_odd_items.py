"""Items whose members have types that no API takes: they are compared like any others, and the API's verdict is the client's."""

import json

import pytest

from gateway.conversation.digests import Digester
from gateway.conversation.items import Level, equal, facts_of
from tests.gateways import Api, running_gateway, running_simulator

DIGESTER = Digester(b"k" * 16)
ODD = [["message"], {"a": 1}, 1, True, 1.5, "", []]


def facts(**item):
    return facts_of(json.dumps(item).encode(), DIGESTER)


@pytest.mark.parametrize("odd", ODD, ids=str)
@pytest.mark.parametrize(
    "name", ["type", "role", "id", "content", "status", "phase", "arguments", "summary", "call_id"]
)
def test_a_member_of_any_type_is_compared_exactly(name, odd):
    """No value raises, each equals itself, and none equals the item without it."""
    for base in (
        {},
        {"type": "message", "role": "assistant"},
        {"type": "reasoning", "encrypted_content": "E"},
    ):
        item = {**base, name: odd}
        assert all(equal(facts(**item), facts(**item), level) for level in Level)
        if not (name in {"id", "summary"} or (name == "content" and odd == [])):
            assert not equal(facts(**base, other=1), facts(**item, other=1), Level.EXACT)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("odd", ODD, ids=str)
async def test_the_api_judges_odd_types(odd, stream):
    """The gateway answers what the API answers, and never with a failure of its own."""
    body = {"model": "gpt-5", "stream": stream, "input": [{"type": odd, "payload": 1}]}
    async with running_simulator() as upstream, running_gateway(upstream.url) as gateway:
        async with Api(upstream.url) as direct, Api(gateway.url) as through:
            wanted, found = await direct.create(body), await through.create(body)
    assert found.status == wanted.status
    assert found.status == (200 if odd == "" else 400)
    if odd != "":
        assert found.answer == wanted.answer
