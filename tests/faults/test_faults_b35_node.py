"""Separators inside texts, read by the official SDK for Node."""

import asyncio
import json
import os
import shutil
import subprocess

import pytest

from tests.faults.scenes import answers, call, said, scene

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(shutil.which("npm") is None, reason="needs node and npm"),
]

ODD = "".join(f"[{mark}]" for mark in "\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r\n\n\r")
ARGUMENTS = json.dumps({"text": ODD}, ensure_ascii=False)
PROGRAM = """
import OpenAI from "openai";
const api = new OpenAI({ apiKey: "sk-test", baseURL: process.argv[2], maxRetries: 0 });
const found = { text: "", done: null };
const asked = { model: "gpt-5", input: "hello", store: false, stream: true };
for await (const event of await api.responses.create(asked)) {
  if (event.type === "response.output_text.delta") found.text += event.delta;
  if (event.type === "response.completed") found.done = event.response;
}
console.log(JSON.stringify(found));
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A program with the SDK beside it."""
    place = tmp_path_factory.mktemp("node")
    command = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "openai@7.59.0"]
    done = subprocess.run(command, cwd=place, capture_output=True, check=False, timeout=100)
    if done.returncode != 0:
        pytest.skip("the SDK for Node cannot be installed here")
    (place / "main.mjs").write_text(PROGRAM)
    return place / "main.mjs"


async def test_b35_the_sdk_for_node_reads_the_same_text(program):
    """Deltas, closing event and arguments are what the model said, to the character."""
    async with scene(answers([said(ODD), call("c1", ARGUMENTS)])) as run:
        child = await asyncio.create_subprocess_exec(
            "node", str(program), run.gateway.url, stdout=asyncio.subprocess.PIPE, env={"PATH": os.environ["PATH"]}
        )  # fmt: skip
        out, _ = await asyncio.wait_for(child.communicate(), 30)
    found = json.loads(out)
    assert child.returncode == 0
    assert found["text"] == ODD
    assert found["done"]["output"][0]["content"][0]["text"] == ODD
    assert found["done"]["output"][1]["arguments"] == ARGUMENTS
