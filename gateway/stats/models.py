"""Names of models and of fields as labels. They are a client's text, so only names from a closed list are ever shown."""

from __future__ import annotations

from functools import lru_cache

OTHER = "other"

KNOWN_MODELS = (
    "gpt-6-codex", "gpt-6-mini", "gpt-6", "gpt-5.6", "gpt-5.5", "gpt-5.4", "gpt-5.3-codex", "gpt-5.3", "gpt-5.2-codex", "gpt-5.2",
    "gpt-5.1-codex", "gpt-5.1", "gpt-5-codex", "gpt-5-mini", "gpt-5-nano", "gpt-5-pro", "gpt-5", "gpt-4.1-mini", "gpt-4.1-nano",
    "gpt-4.1", "gpt-4o-mini", "gpt-4o", "gpt-oss", "o4-mini", "o3-pro", "o3-mini", "o3", "o1", "codex-mini", "computer-use-preview",
    "claude", "deepseek", "gemini", "glm", "grok", "kimi", "llama", "mistral", "qwen",
)  # fmt: skip
"""Families of models; a family stands for all its variants, dates and sizes that are not named themselves."""

KNOWN_FIELDS = frozenset({
    "background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens", "max_tool_calls",
    "metadata", "model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
    "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream",
    "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
})  # fmt: skip
"""Fields of a request that the API documents."""

MODELS = (*KNOWN_MODELS, OTHER)

_LONGEST_FIRST = sorted(KNOWN_MODELS, key=len, reverse=True)
_SEPARATORS = "-.:@_"


def model_label(model: str) -> str:
    """The label for a model named by a client, such as ``openai/gpt-5.1-2026-01-01``: its family, else ``other``."""
    return _family(model[:80].rpartition("/")[2].lower())


@lru_cache(256)
def _family(name: str) -> str:
    for known in _LONGEST_FIRST:
        if name.startswith(known) and (
            len(name) == len(known) or name[len(known)] in _SEPARATORS or known.isalpha()
        ):
            return known
    return OTHER


def field_label(name: str) -> str:
    """The label for a field of a request: its name if the API documents it, else ``other``."""
    return name if name in KNOWN_FIELDS else OTHER
