"""All selected clients, each run once directly and once through the gateway, two at a time."""

import asyncio
import contextlib
import os
import traceback

import pytest

from tests.clients import installing, playing
from tests.clients.catalog import Place

AT_ONCE = 2
SLOW_FIRST = ("litellm", "opencode", "cline")
INSTALL = installing.IN_CI or os.environ.get("UPWIRE_INSTALL_CLIENTS") == "1"


class Played:
    """What the runs of one row showed: ``direct``, and ``through`` by level; ``missing`` or ``failed`` say why not."""

    def __init__(self):
        self.direct = None
        self.through = {}
        self.missing = None
        self.failed = None


async def play(row, folder):
    """Install a client if need be, and run it."""
    played = Played()
    try:
        place = await asyncio.to_thread(installing.ensure, row.pin, install=INSTALL)
        played.direct = await playing.direct(row, Place(installed=place, home=folder / "direct"))
        for level in row.levels:
            run = await playing.through(row, Place(installed=place, home=folder / level), level)
            played.through[level] = run
    except installing.NotInstalled as reason:
        played.missing = str(reason)
    except Exception:  # noqa: BLE001 (told by the test of this row, so that the others are run)
        played.failed = traceback.format_exc()
    finally:
        for home in ("direct", *row.levels):
            playing.end_daemons(folder / home)
    return played


async def play_all(rows, folder):
    """All rows, those that take long first; one installation of each client."""
    gate = asyncio.Semaphore(AT_ONCE)
    alone = {row.pin: asyncio.Lock() for row in rows}

    async def one(row):
        # Held for the installation only, which the first row of a client makes for the others.
        async with alone[row.pin], gate:
            with contextlib.suppress(installing.NotInstalled):
                await asyncio.to_thread(installing.ensure, row.pin, install=INSTALL)
        async with gate:
            return row.name, await play(row, folder / row.name)

    ordered = sorted(rows, key=lambda row: row.pin not in SLOW_FIRST)
    return dict(await asyncio.gather(*(one(row) for row in ordered)))


@pytest.fixture(scope="session")
def played(request, tmp_path_factory):
    """Gives what a row showed; runs, once, the rows that are tested in this session."""
    # Tests elsewhere have parameters of the same name.
    mine = [item for item in request.session.items if "played" in getattr(item, "fixturenames", ())]
    parameters = [getattr(item, "callspec", None) for item in mine]
    rows = {
        each.params["row"].name: each.params["row"] for each in parameters if each and "row" in each.params
    }
    shown = asyncio.run(play_all(list(rows.values()), tmp_path_factory.mktemp("clients")))

    return Shown(shown)


class Shown:
    """What each row showed, for those that were run."""

    def __init__(self, shown):
        self._shown = shown

    def ran(self, row):
        """Whether the row was run to its end."""
        seen = self._shown.get(row.name)
        return seen is not None and not seen.missing and not seen.failed

    def __call__(self, row):
        """What the row showed; fails or skips the test if it could not be run."""
        seen = self._shown[row.name]
        if seen.missing:
            (pytest.fail if installing.IN_CI else pytest.skip)(seen.missing)
        if seen.failed:
            pytest.fail(seen.failed)
        return seen
