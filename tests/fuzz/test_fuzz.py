"""The fuzz targets on a few hundred inputs each; ``make fuzz`` gives them minutes, guided by coverage."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings

from tests.fuzz import bodies, conversations, exchanges, faces
from tests.fuzz.choices import inputs

SOME = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("target", [bodies, conversations, exchanges], ids=lambda target: target.__name__)
def test_every_seed_is_handled(target):
    """What the fuzzers begin with keeps every promise itself."""
    for seed in target.seeds():
        target.check(seed)


@SOME
@given(inputs(bodies.seeds()))
def test_compressed_bodies(data):
    """Any stream in any coding: the body, or a refusal, in bounded time and size."""
    bodies.check(data)


@SOME
@given(inputs(exchanges.seeds(), size=600))
def test_events_of_the_upstream(data):
    """Any frames in any order: no exception, one response, one ending."""
    exchanges.check(data)


@SOME
@given(inputs(conversations.seeds()))
def test_requests_of_clients(data):
    """Any bodies, one after the other: what the upstream is made to hold is what the client asked for."""
    conversations.check(data)


@pytest.fixture(scope="module")
def running_faces():
    """One gateway and one upstream for all inputs."""
    running = faces.Faces()
    yield running
    running.close()
    asyncio.set_event_loop(None)


@settings(SOME, max_examples=800)
@given(data=inputs(faces.seeds(), size=600))
def test_both_faces(running_faces, data):
    """Any events through a running gateway: a stream in order that ends as it should, or one object, or an error."""
    running_faces.check(data)


def test_both_faces_at_every_seed(running_faces):
    """The seeds through a running gateway."""
    for seed in faces.seeds():
        running_faces.check(seed)
