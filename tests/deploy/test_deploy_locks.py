"""The lock files: one set of versions, with hashes, without a registry's address, and nothing in the image that is not needed."""

import re
import tomllib

import pytest

from tests.deploy.tools import DEPLOY, ROOT

LOCKS = [ROOT / "requirements.lock", *sorted(DEPLOY.glob("requirements*.lock"))]


def versions(path):
    """What a lock names, each with its version."""
    return dict(re.findall(r"^([a-z0-9.-]+)==([^ ;\\]+)", path.read_text(), re.MULTILINE))


def canonical(requirement):
    """The name in a requirement, as locks spell it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_is_hashed_and_names_no_address(path):
    """Each version has a hash, and where it comes from is the machine's matter."""
    text = path.read_text()
    named = re.findall(r"^[a-z0-9.-]+==.*\\\n(.*)$", text, re.MULTILINE)
    assert len(named) == len(versions(path)) > 3
    assert all(line.strip().startswith("--hash=sha256:") for line in named)
    assert "://" not in text


def test_the_image_has_what_is_tested_and_no_more():
    """Every direct dependency is locked for the image, in the version of the tests, and none of the tools is."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    tested, shipped = versions(ROOT / "requirements.lock"), versions(DEPLOY / "requirements.lock")
    assert {canonical(each) for each in project["project"]["dependencies"]} <= set(shipped)
    assert shipped.items() <= tested.items(), shipped.items() - tested.items()
    tools = {canonical(each) for each in project["dependency-groups"]["dev"]} - {"openai"}
    assert not tools & set(shipped)
    assert versions(DEPLOY / "requirements-redis.lock").items() - shipped.items() == {
        (name, tested[name]) for name in ("async-timeout", "redis")
    }
    traced = versions(DEPLOY / "requirements-otel.lock")
    assert shipped.items() <= traced.items()
    assert "opentelemetry-sdk" in traced


def test_what_builds_and_checks_is_locked_as_asked():
    """The groups for building and for checks are covered by their locks."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    for group in ("build", "ops"):
        locked = versions(DEPLOY / f"requirements-{group}.lock")
        assert {canonical(each) for each in groups[group]} <= set(locked)
