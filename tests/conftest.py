"""What holds for all tests: no proxy, no settings of the machine they run on, and one place for the number of examples."""

import os
import signal

import pytest
import structlog
from hypothesis import settings

_PROXIES = ("http_proxy", "https_proxy", "ws_proxy", "wss_proxy", "socks_proxy", "all_proxy", "no_proxy")

settings.register_profile(
    "laws", max_examples=int(os.environ.get("UPWIRE_LAW_EXAMPLES", "100")), deadline=None
)
settings.load_profile("laws")

for _name in tuple(os.environ):
    if _name.lower() in _PROXIES:
        del os.environ[_name]

# A shell starts what runs in its background with Ctrl-C ignored, and commands that are told to ignore it rightly do.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

if os.environ.get("UPWIRE_TEST_LOOP") == "uvloop":
    import uvloop

    def pytest_asyncio_loop_factories(config, item):  # noqa: ARG001 (the hook gives both)
        """Tests run on the loop that is asked for."""
        return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(autouse=True, scope="session")
def _no_settings_from_outside(tmp_path_factory):
    """Commands started by tests must not see the settings of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in tuple(os.environ):
            if name.startswith("UPWIRE_"):
                patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("no-config")))
        yield


@pytest.fixture(autouse=True)
def _logging_as_it_was():
    """A level that one test sets must not hide from another one what it wants to capture."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
