"""Command-line agents: how each is started without a person, told to go on, and read."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "PI_OFFLINE": "1",
    "PI_SKIP_VERSION_CHECK": "1",
    "PI_TELEMETRY": "0",
    "CLINE_TELEMETRY_DISABLED": "1",
    "CLINE_NO_AUTO_UPDATE": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "npm_config_offline": "true",
}
"""No client may look for updates or send reports: nothing but this machine would answer, and some would wait."""


STEPS = (
    "loop 3: What is the weather?",
    "loop 1: And tomorrow?",
    "loop 0 stall: And why?",
    "loop 0: And then?",
)
"""Six turns with tool calls, one that is interrupted in the middle of its text, and one after it."""


def json_lines(text):
    """All lines that are JSON objects."""
    found = []
    for line in text.split("\n"):
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return found


@dataclass(frozen=True)
class Codex:
    """Codex CLI, by its built-in provider or with a login whose bodies it compresses."""

    tools: ClassVar = {"exec_command": '{"cmd":"echo h\\u00e9 %d"}'}
    steps = STEPS

    def program(self, place):
        """The executable."""
        (found,) = place.installed.glob("node_modules/@openai/codex/vendor/*/bin/codex")
        return str(found)

    def settle(self, place):
        """What else its configuration needs so that it runs alone."""
        config = place.home / ".codex" / "config.toml"
        more = (
            'model = "gpt-5-codex"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
            "check_for_update_on_startup = false\n[analytics]\nenabled = false\n"
            f'[projects."{place.work}"]\ntrust_level = "trusted"\n'
        )
        config.write_text(config.read_text("utf-8") + more, "utf-8")
        subprocess.run(["git", "init", "-q", str(place.work)], check=True)

    def environment(self, _place):
        """Its key has a name of its own."""
        return {"CODEX_API_KEY": "sk-test"}

    def command(self, place, text, *, first):
        """One step."""
        again = [] if first else ["resume", "--last"]
        return [self.program(place), "exec", *again, "--json", "--skip-git-repo-check", text]

    def shown(self, text):
        """Final texts and commands with what they printed."""
        found = []
        for event in json_lines(text):
            item = event.get("item") or {}
            if event.get("type") == "item.completed" and item.get("type") == "agent_message":
                found.append(["text", item["text"]])
            elif event.get("type") == "item.completed" and item.get("type") == "command_execution":
                found.append([item["command"], item["aggregated_output"], item["exit_code"]])
        return found


@dataclass(frozen=True)
class CodexLogin(Codex):
    """Codex with a ChatGPT login in place of a key: it compresses its bodies, and asks for much beside its turns."""

    def settle(self, place):
        """A made-up login; all it would ask of that service goes to the same base URL and is told 404."""
        super().settle(place)
        config = place.home / ".codex" / "config.toml"
        text = config.read_text("utf-8")
        url = text.partition('openai_base_url = "')[2].partition('"')[0]
        config.write_text(f'chatgpt_base_url = "{url}"\n{text}', "utf-8")
        account = {
            "chatgpt_plan_type": "pro",
            "chatgpt_account_id": "acc-test",
            "chatgpt_user_id": "u",
        }
        claims = {"email": "a@example.com", "exp": 4102444800, "https://api.openai.com/auth": account}
        token = f"{_encoded({'alg': 'none', 'typ': 'JWT'})}.{_encoded(claims)}.c2ln"
        login = {
            "auth_mode": "chatgpt",
            "OPENAI_API_KEY": None,
            "tokens": {
                "id_token": token,
                "access_token": token,
                "refresh_token": "r-test",
                "account_id": "acc-test",
            },
            "last_refresh": datetime.now(UTC).isoformat(),
        }
        (place.home / ".codex" / "auth.json").write_text(json.dumps(login), "utf-8")

    def environment(self, _place):
        """No key at all."""
        return {"OPENAI_API_KEY": ""}


def _encoded(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@dataclass(frozen=True)
class Opencode:
    """opencode, which also asks for a title beside the first turn."""

    tools: ClassVar = {"bash": '{"command":"echo h\\u00e9 %d", "description":"Says hello"}'}
    steps = STEPS

    def program(self, place):
        """The executable."""
        return str(place.installed / "node_modules" / "opencode-linux-x64" / "bin" / "opencode")

    def settle(self, place):
        """What else its configuration needs so that it runs alone."""
        path = place.home / ".config" / "opencode" / "opencode.json"
        config = json.loads(path.read_text("utf-8"))
        config |= {
            "autoupdate": False,
            "share": "disabled",
            "model": "openai/gpt-5",
            "small_model": "openai/gpt-5-mini",
            "permission": {"bash": "allow", "edit": "allow"},
        }
        openai = config["provider"]["openai"]
        openai["options"]["apiKey"] = "sk-test"
        openai["models"] = {"gpt-5": {"name": "GPT-5"}, "gpt-5-mini": {"name": "GPT-5 mini"}}
        path.write_text(json.dumps(config), "utf-8")
        subprocess.run(["git", "init", "-q", str(place.work)], check=True)

    def environment(self, place):
        """All its folders in the home."""
        names = ("config", "data", "cache", "state")
        folders = {f"XDG_{name.upper()}_HOME": str(place.home / f".{name}") for name in names}
        return {**folders, "XDG_CONFIG_HOME": str(place.home / ".config")}

    def command(self, place, text, *, first):
        """One step."""
        again = [] if first else ["-c"]
        return [self.program(place), "run", *again, "--format", "json", "-m", "openai/gpt-5", text]

    def shown(self, text):
        """Texts and finished tool calls."""
        found = []
        for event in json_lines(text):
            part = event.get("part") or {}
            if part.get("type") == "text":
                found.append(["text", part["text"]])
            elif part.get("type") == "tool":
                state = part["state"]
                found.append([part["tool"], state.get("input"), state.get("output"), state["status"]])
        return found


@dataclass(frozen=True)
class Pi:
    """pi in JSON mode."""

    tools: ClassVar = {"bash": '{"timeout":50, "command":"echo h\\u00e9 %d"}'}
    steps = STEPS

    def program(self, place):
        """The executable."""
        return str(place.installed / "node_modules" / ".bin" / "pi")

    def settle(self, place):
        """The key, as the client's own file has it."""
        path = place.home / ".pi" / "agent" / "models.json"
        config = json.loads(path.read_text("utf-8"))
        config["providers"]["openai"]["apiKey"] = "sk-test"
        path.write_text(json.dumps(config), "utf-8")

    def environment(self, _place):
        """Nothing more."""
        return {}

    def command(self, place, text, *, first):
        """One step."""
        again = [] if first else ["-c"]
        return [
            self.program(place),
            "-p",
            *again,
            "--mode",
            "json",
            "--provider",
            "openai",
            "--model",
            "gpt-5",
            text,
        ]

    def shown(self, text):
        """Texts and tool results."""
        found = []
        for event in json_lines(text):
            if event.get("type") == "tool_execution_end":
                found.append([event["toolName"], event["result"].get("content"), event["isError"]])
            elif event.get("type") == "message_end" and event["message"]["role"] == "assistant":
                found.extend(
                    ["text", one["text"]] for one in event["message"]["content"] if one["type"] == "text"
                )
        return found


@dataclass(frozen=True)
class Cline:
    """Cline CLI with its provider for the Responses API."""

    tools: ClassVar = {"run_commands": '{"commands":["echo hi %d"]}'}
    steps = ("loop 5: What is the weather?", "loop 0 stall: And why?", "loop 0: And then?")

    def program(self, place):
        """The executable."""
        return str(place.installed / "node_modules" / "@cline" / "cli-linux-x64" / "bin" / "cline")

    def settle(self, place):
        """Nothing more."""

    def environment(self, _place):
        """Nothing more."""
        return {}

    def command(self, place, text, *, first):  # noqa: ARG002 (goes on with a session only on a terminal)
        """One step, in a session of its own."""
        return [self.program(place), "--json", "-P", "openai-native", "-m", "gpt-5", text]

    def shown(self, text):
        """Texts and tool calls with their results."""
        found = []
        for line in json_lines(text):
            event = line.get("event") or {}
            if line.get("type") == "run_result":
                found.append(["result", line["finishReason"], line.get("text")])
            if event.get("type") != "content_end":
                continue
            if event.get("contentType") == "text":
                found.append(["text", event["text"]])
            elif event.get("contentType") == "tool":
                found.append([event.get("toolName"), event.get("input"), event.get("output")])
        return found
