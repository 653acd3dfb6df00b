"""Whatever peers do, nothing may be logged as a failure, and no failure may be left for nobody to see."""

import asyncio
import gc
import logging

import pytest
import structlog


class _Heard(logging.Handler):
    """Keeps what libraries log from WARNING on."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.records = []

    def emit(self, record):
        self.records.append(record.getMessage())


@pytest.fixture(autouse=True)
async def quiet():
    """Fails a test in which anything was logged as a failure, by us or a library, or was never retrieved."""
    unhandled = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unhandled.append(context))
    heard = _Heard()
    logging.getLogger().addHandler(heard)
    # What was there before the test need not be looked through for what it left.
    gc.freeze()
    try:
        with structlog.testing.capture_logs() as lines:
            yield lines
            # A failure that nobody retrieved is reported when its future is collected.
            gc.collect()
            await asyncio.sleep(0)
    finally:
        gc.unfreeze()
        logging.getLogger().removeHandler(heard)
    assert not unhandled
    assert not heard.records
    assert not [line for line in lines if line["log_level"] in {"error", "critical"}]
