"""The dashboard: one page that needs nothing from anywhere else.

It is kept as a few files that are easy to read, and sent as one whose security policy lets nothing run but exactly these.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

import orjson

from gateway.stats import CLOSED_TEXTS, REASON_TEXTS, RECOVERY_TEXTS


@cache
def body() -> bytes:
    """The page."""
    page = _file("dashboard.html")
    for place, text in (("/* style */", _style()), ("/* script */", _script())):
        page = page.replace(place, text)
    return page.encode()


@cache
def headers() -> dict[str, str]:
    """What goes along with the page: it may fetch from its own gateway, and nothing else."""
    policy = {
        "default-src": "'none'",
        "script-src": _hash(_script()),
        "style-src": _hash(_style()),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }


@cache
def _script() -> str:
    texts = {"reasons": REASON_TEXTS, "recoveries": RECOVERY_TEXTS, "closed": CLOSED_TEXTS}
    plain = {kind: {word: list(text) for word, text in words.items()} for kind, words in texts.items()}
    return (_file("charts.js") + _file("dashboard.js")).replace('"/* texts */"', orjson.dumps(plain).decode())


@cache
def _style() -> str:
    return _file("dashboard.css")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return resources.files("gateway.admin").joinpath(name).read_text(encoding="utf-8")
