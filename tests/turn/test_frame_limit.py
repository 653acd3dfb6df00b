"""What a close with 1009 teaches: a limit, unless larger frames were answered, and never for good."""

from gateway.simulator import Fault
from gateway.simulator import faults as f
from tests.faults.scenes import body, scene, user
from tests.gateways import Api

TOO_BIG = Fault(actions=f.Close(1009))


async def test_a_refusal_of_a_frame_smaller_than_one_that_was_answered_teaches_nothing():
    """One stray 1009 costs its own turn the socket, and no other turn."""
    async with scene() as run:
        assert (await run.api.create(body([user("x" * 5000)]))).mode == "full"
        run.simulator.faults.add(TOO_BIG)
        refused = await run.api.create(body([user("y" * 2000)]))
        assert (refused.status, refused.mode, refused.reason) == (200, "http", "too_large")

        for size in (1000, 3000, 6000):
            assert (await run.api.create(body([user("z" * size)]))).mode == "full"


async def test_a_learned_limit_is_tried_again_after_a_while():
    """An upstream that refused the first small frame of all is not left to plain HTTP for ever."""
    async with scene(upgrade_memory=0.2) as run:
        run.simulator.faults.add(TOO_BIG)
        modes = [(await run.api.create(body([user(f"{n}")]))).mode for n in range(2)]
        assert modes == ["http", "http"]
        async with Api(run.gateway.url) as api:
            await _until_a_socket_is_used(api)


async def _until_a_socket_is_used(api):
    for _ in range(200):
        if (await api.create(body([user("again")]))).mode == "full":
            return
    raise AssertionError("the limit was believed for ever")
