"""The step of ``upwire check`` about the index that gateways share."""

import pytest

from gateway.cli.check_index import index_row
from gateway.settings import Settings
from tests.ports import free_port
from tests.replicas.redis_servers import SECRET, running_redis

HIDDEN = "hidden-password"


@pytest.fixture
def secret(tmp_path):
    """The file with a deployment's secret."""
    file = tmp_path / "secret"
    file.write_text(SECRET)
    return str(file)


async def row_of(url, secret, **more):
    """The row for an index at this URL, which never shows a password."""
    row = await index_row(Settings(index=url, index_key_file=secret, **{"profile": "openai", **more}))
    assert row.name == "index"
    assert HIDDEN not in str(row)
    return row


async def test_nobody_answers(secret):
    """A closed port is told as such, with what to look at."""
    row = await row_of(f"redis://:{HIDDEN}@127.0.0.1:{free_port()}/0", secret)
    assert (row.verdict, "unreachable" in row.seen) == ("failed", True)
    assert "runs" in row.remedy


async def test_no_secret(tmp_path):
    """A secret that cannot be used is the first thing to say."""
    row = await row_of("redis://127.0.0.1:1/0", str(tmp_path / "none"))
    assert (row.verdict, "index_key_file" in row.seen) == ("failed", True)


@pytest.mark.system
async def test_a_real_one(secret):
    """One that answers and takes data is ok; where the upstream cannot reload there is nothing to share."""
    async with running_redis() as redis:
        row = await row_of(redis.url, secret, index_timeout=5.0)
        assert (row.verdict, "takes data" in row.seen) == ("ok", True)
        assert "profile" in (await row_of(redis.url, secret, index_timeout=5.0, profile="generic")).remedy
        assert (await row_of(redis.url, secret, index_timeout=0.000001)).verdict == "warning"
        await redis.client.config_set("maxmemory", "1")
        row = await row_of(redis.url, secret)
        assert (row.verdict, "full" in row.seen, "memory" in row.remedy) == ("failed", True, True)


@pytest.mark.system
async def test_a_wrong_password(secret):
    """It is refused, and not shown."""
    async with running_redis(password="another") as redis:
        row = await row_of(redis.url.replace("another", HIDDEN), secret)
        assert (row.verdict, "refused" in row.seen, "password" in row.remedy) == ("failed", True, True)
