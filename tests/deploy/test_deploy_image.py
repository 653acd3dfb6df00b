"""The image: what the Dockerfile says, and what comes out when its steps are done one by one in a bare Debian."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess

import pytest

from gateway import __version__
from tests.deploy.dockerfile import allowed, build, read
from tests.deploy.tools import DEPLOY, IN_CI, ROOT, debian, ops, run
from tests.gateways import Api, running_simulator

DOCKERFILE = DEPLOY / "Dockerfile"
BODY = {"model": "gpt-5", "store": False, "input": "words 2"}
SHELLS = ("sh", "bash", "dash", "rbash")


def test_the_image_runs_as_a_number_without_a_shell():
    """The user is numeric and not root; every command is a list, so that nothing needs a shell; signals reach the program."""
    build_stage, final = read(DOCKERFILE)
    says = dict(final.steps)
    assert build_stage.base == final.base
    user, group = says["USER"].split(":")
    assert int(user) > 1000
    assert int(group) > 1000
    for word in ("ENTRYPOINT", "CMD"):
        assert isinstance(json.loads(says[word]), list)
    assert json.loads(says["HEALTHCHECK"].partition(" CMD ")[2]) == [
        *json.loads(says["ENTRYPOINT"]),
        "health",
    ]
    assert says["STOPSIGNAL"] == "SIGTERM"
    assert [rest for word, rest in final.steps if word == "COPY"] == ["--from=build /opt/upwire /opt/upwire"]


def test_all_that_is_installed_is_locked():
    """Each pip takes hashes only, or nothing but what was built here; no dependency is built from source."""
    commands = [
        rest for stage in read(DOCKERFILE) for word, rest in stage.steps if word == "RUN" and "/pip" in rest
    ]
    assert len(commands) == 3
    for command in commands:
        for part in (part for part in command.split("&&") if "/pip" in part):
            assert "--require-hashes" in part or "--no-deps --no-index" in part
    assert "--only-binary :all:" in commands[1]


@pytest.mark.system
def test_hadolint_finds_nothing():
    """The linter of Dockerfiles has nothing to say."""
    assert run(ops("hadolint"), "--failure-threshold", "style", DOCKERFILE) == ""


OUTSIDE = ("PIP_CERT", "PIP_INDEX_URL", "PIP_DEFAULT_TIMEOUT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
"""What a builder is given of the machine that it runs on."""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The root folder of the final stage and what it says about running it; removed at the end, since it is large."""
    if os.geteuid() != 0:
        if IN_CI:
            pytest.fail("only root can build the image in a root folder of its own", pytrace=False)
        pytest.skip("only root can build the image in a root folder of its own")
    debootstrap = debian("debootstrap", "debootstrap")
    place = tmp_path_factory.mktemp("image")
    try:
        yield _image(debootstrap, place)
    finally:
        run("rm", "--recursive", "--force", "--one-file-system", place, within=300)


def _image(debootstrap, place):
    stages = read(DOCKERFILE)
    suite = stages[0].base.removeprefix("debian:").removesuffix("-slim")
    run(debootstrap, "--variant=minbase", suite, place / "base", within=400)
    for file in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{file}", place / "base" / "etc" / file)
    outside = {name: os.environ[name] for name in OUTSIDE if name in os.environ}
    if "PIP_CERT" in outside:
        # An authority of this machine's own, in a place that no package overwrites.
        shutil.copy(outside["PIP_CERT"], place / "base" / "authority.pem")
        outside["PIP_CERT"] = "/authority.pem"
    context = place / "context"
    ignore = DEPLOY / "Dockerfile.dockerignore"
    for path in map(
        ROOT.joinpath,
        run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines(),
    ):
        if path.exists() and allowed(ROOT, ignore, path):
            (context / path.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, context / path.relative_to(ROOT))
    built = {}
    for stage in stages:
        root = place / (stage.name or "final")
        run("cp", "--archive", place / "base", root)
        says = build(stage, root, context, built, outside)
        built[stage.name or "final"] = root
    return built["final"], says


def inside(image, *command, **environment):
    """A command as the image's user, on a root that nobody can write, without any shell."""
    root, says = image
    script = (
        'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec chroot --userspec="$1" "$0" "${@:2}"'
    )
    return {
        "args": ["unshare", "--mount", "bash", "-c", script, str(root), says["USER"], *command],
        "env": {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", **environment},
    }


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(480)
def test_the_image_is_small_and_has_nothing_to_install_with(image):
    """No pip and no compiler; what is ours takes less than 70 MB; there is bytecode, since none can be written later."""
    root, _ = image
    for shell in SHELLS:
        (root / "usr" / "bin" / shell).unlink(missing_ok=True)
    ours = root / "opt" / "upwire"
    size = sum(path.lstat().st_size for path in ours.rglob("*") if not path.is_symlink())
    assert size < 70_000_000
    assert (
        not list(ours.glob("bin/pip*")) + list(root.glob("usr/bin/pip*")) + list(root.glob("usr/bin/*gcc*"))
    )
    packages = {path.name for path in ours.glob("lib/python*/site-packages/*")}
    assert "gateway" in packages
    assert not packages & {"pytest", "mypy", "hatchling", "pip", "setuptools"}
    assert list(ours.glob("lib/python*/site-packages/gateway/server/__pycache__/*.pyc"))
    done = subprocess.run(
        **inside(image, "/opt/upwire/bin/upwire", "--version"), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == (f"upwire {__version__}\n", 0), done.stderr


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.timeout(480)
async def test_the_image_serves_is_healthy_and_drains(image):
    """On a read-only root, as its user and without a shell it serves turns as deltas, is its own probe, and ends on SIGTERM with 0."""
    root, says = image
    for shell in SHELLS:
        (root / "usr" / "bin" / shell).unlink(missing_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])

    async def healthy():
        asked = inside(image, *says["HEALTHCHECK"], UPWIRE_PORT=port)
        child = await asyncio.create_subprocess_exec(
            *asked["args"], env=asked["env"], stderr=asyncio.subprocess.DEVNULL
        )
        return await asyncio.wait_for(child.wait(), 20)

    assert await healthy() == 1
    async with running_simulator() as simulator:
        started = inside(
            image, *says["ENTRYPOINT"], *says["CMD"], UPWIRE_PORT=port, UPWIRE_UPSTREAM=simulator.url
        )
        child = await asyncio.create_subprocess_exec(
            *started["args"],
            env=started["env"],
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            while b"export " not in (line := await asyncio.wait_for(child.stdout.readline(), 20)):
                assert line, (await child.stderr.read()).decode()
            assert await healthy() == 0
            async with Api(f"http://127.0.0.1:{port}/v1") as api:
                first = await api.create(BODY)
                question = {"role": "user", "content": BODY["input"]}
                more = [question, *first.answer["output"], {"role": "user", "content": "words 2"}]
                assert [first.mode, (await api.create({**BODY, "input": more})).mode] == ["full", "delta"]
            child.send_signal(signal.SIGTERM)
            _, err = await asyncio.wait_for(child.communicate(), 10)
        finally:
            if child.returncode is None:
                child.kill()
                await child.communicate()
    assert child.returncode == 0
    assert [json.loads(line)["event"] for line in err.splitlines()] == ["turn", "turn"]
