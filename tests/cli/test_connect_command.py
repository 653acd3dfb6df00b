"""``upwire connect``."""

import json
import re
import tomllib

import pytest

from gateway.cli.connect import names, recipe, title

CLIENTS = [
    "cline",
    "codex",
    "langchain",
    "openai-agents",
    "openai-node",
    "openai-python",
    "opencode",
    "pi",
    "pydantic-ai",
    "vercel-ai",
]


def code_of(text):
    """The indented blocks of a recipe."""
    lines = [line[4:] if line.startswith("    ") else "" for line in text.splitlines()]
    return [block for block in re.split(r"\n{2,}", "\n".join(lines)) if block.strip()]


def test_all_clients_are_listed(upwire):
    """Without a name the command lists every client with its title."""
    code, out, _ = upwire("connect")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == names() == CLIENTS


@pytest.mark.parametrize("client", CLIENTS)
def test_every_recipe_has_the_url(upwire, client):
    """Each recipe has a title and the gateway's own base URL, and leaves no placeholder."""
    code, out, _ = upwire("connect", client, "--port", "5")
    assert code == 0
    assert out.startswith(f"# {title(client)}\n")
    assert "http://127.0.0.1:5/v1" in out
    assert "{base_url}" not in out
    assert upwire("connect", client, "--url", "http://h:9/v1/")[1] == recipe(client, "http://h:9/v1")


@pytest.mark.parametrize("client", ["opencode", "pi"])
def test_json_recipes_are_json(client):
    """What is to be copied into a JSON file is valid JSON."""
    (block,) = code_of(recipe(client, "http://h/v1"))
    assert "http://h/v1" in json.dumps(json.loads(block))


def test_the_codex_recipe_is_toml():
    """Codex speaks HTTP to the gateway by either recipe, and the Responses API."""
    blocks = [tomllib.loads(block) for block in code_of(recipe("codex", "http://h/v1"))]
    assert blocks[0] == {"model_provider": "upwire"}
    assert blocks[1]["model_providers"]["upwire"] == {
        "name": "upwire",
        "base_url": "http://h/v1",
        "wire_api": "responses",
        "env_key": "OPENAI_API_KEY",
    }
    assert blocks[2] == {"openai_base_url": "http://h/v1"}
