"""The Compose files: valid for two readers of them, hardened, and reaching no further than they say."""

import os

import pytest

from tests.deploy.tools import DEPLOY, ROOT, debian, ops, run, yaml_documents

COMPOSE = DEPLOY / "compose"
FORMS = (
    ("compose.yaml",),
    ("compose.first.yaml",),
    ("compose.token.yaml",),
    ("compose.yaml", "compose.watch.yaml"),
)
pytestmark = pytest.mark.system


def together(*names):
    """What Compose makes of these files, with all values put in."""
    program = debian("docker-compose", "docker-compose")
    files = [part for name in names for part in ("--file", COMPOSE / name)]
    given = os.environ | {"APP_IMAGE": "example/app:1", "UPWIRE_TOKEN": "t" * 32}
    (read,) = yaml_documents(run(program, *files, "config", env=given))
    return read


@pytest.fixture(params=FORMS, ids="+".join)
def form(request):
    """Each form that can be started, as Compose reads it."""
    return request.param, together(*request.param)


def test_the_files_are_valid_by_the_published_schema():
    """The schema of the Compose specification takes each."""
    run(ops("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", *COMPOSE.glob("*.yaml"))


def test_the_gateway_is_hardened_in_each(form):
    """It runs as a number, on a root it cannot write, without capabilities, within limits, and has time to drain."""
    _, read = form
    upwire = read["services"]["upwire"]
    assert (upwire["user"], upwire["read_only"], upwire["cap_drop"]) == ("65532:65532", True, ["ALL"])
    assert upwire["security_opt"] == ["no-new-privileges:true"]
    assert upwire["mem_limit"]
    assert upwire["pids_limit"]
    assert "ports" not in upwire
    assert "volumes" not in upwire
    environment = upwire["environment"]
    needed = (
        float(environment.get("UPWIRE_DRAIN_GRACE", 0))
        + float(environment.get("UPWIRE_DRAIN_TIMEOUT", 30))
        + 10
    )
    assert _seconds(upwire["stop_grace_period"]) >= needed
    assert (ROOT / upwire["build"]["dockerfile"]).exists()


def test_loopback_is_shared_or_a_token_is_asked_for(form):
    """Either the application and the gateway are in one network namespace, or the gateway has a token and names itself."""
    _, read = form
    upwire, app = read["services"]["upwire"], read["services"]["app"]
    if "UPWIRE_HOST" not in upwire["environment"]:
        assert upwire.get("network_mode") == "service:app" or app.get("network_mode") == "service:upwire"
        assert app["environment"]["OPENAI_BASE_URL"] == "http://127.0.0.1:7411/v1"
        return
    assert upwire["environment"]["UPWIRE_TOKEN_FILE"] == "/run/secrets/upwire_token"
    assert {secret["source"] for secret in upwire["secrets"]} == {"upwire_token", "openai_key"}
    assert app["environment"]["OPENAI_BASE_URL"] == "http://upwire:7411/v1"
    assert app["environment"]["OPENAI_API_KEY"] == "t" * 32
    assert read["networks"]["agents"]["internal"] is True


def test_each_file_that_is_mounted_is_there():
    """Prometheus and Grafana get what they are pointed to, and Grafana is published on loopback only."""
    read = together("compose.yaml", "compose.watch.yaml")
    for name in ("prometheus", "grafana"):
        mounted = [
            volume.split(":")[0] for volume in read["services"][name]["volumes"] if volume.startswith("/")
        ]
        assert mounted
        for path in mounted:
            assert os.path.isfile(path), path  # noqa: PTH113
    assert read["services"]["grafana"]["ports"] == ["127.0.0.1:3000:3000/tcp"]


def _seconds(text):
    minutes, _, rest = text.rpartition("m")
    return 60 * float(minutes or 0) + float(rest.removesuffix("s") or 0)
