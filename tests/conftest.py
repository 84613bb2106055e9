"""How the tests run: one thread for each worker, and the same generated cases every time.

pytest -n 2                                         the "ci" cases, the same at each run
HYPOTHESIS_PROFILE=deep pytest tests/attention      many more, new ones at each run
"""

import asyncio
import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("ci", derandomize=True, deadline=None, database=None, max_examples=100)
settings.register_profile(
    "deep",
    deadline=None,
    database=None,
    max_examples=2000,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)  # the workers already share the cores


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Three workers for two cores, with -n auto: many tests wait for a process or a time limit."""
    return -(-3 * (os.cpu_count() or 1) // 2)


@pytest.fixture(autouse=True, scope="session")
def nothing_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user has fetched, and the width of the terminal, change no test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLEARHEAD_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.delenv("COLUMNS", raising=False)  # pytest-xdist sets it
        yield


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def no_event_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let tests without a browser use asyncio, although playwright's event loop is running."""
    loop = asyncio._get_running_loop()
    if loop is None or {"browser", "page"} & set(request.fixturenames):
        yield
        return
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)
