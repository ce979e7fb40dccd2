"""A process that is gone is known to be; one that cannot be validated is left alone."""

import subprocess
import sys

import pytest

from lakebed.storage import processes as owner

pytestmark = pytest.mark.skipif(not owner.this_process(), reason="this system has neither /proc nor ps")


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"], stdout=-1)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_living_process_is_not_gone(child):
    assert not owner.is_gone(owner.this_process())
    assert not owner.is_gone(owner._owner(child.pid))


def test_a_killed_process_is_gone(child):
    name = owner._owner(child.pid)
    child.kill()
    child.wait()
    assert owner.is_gone(name)


def test_another_process_with_the_pid_of_a_gone_one_does_not_stand_for_it(child):
    before, _, start = owner._owner(child.pid).rpartition(":")
    assert owner.is_gone(f"{before}:{int(start) - 1}")


@pytest.mark.parametrize("text", ["", "owner", "host:another-boot:[1]:1:1", "host:::::", "a:b:c:d:e:f"])
def test_what_cannot_be_judged_is_not_gone(text):
    assert not owner.is_gone(text)


def test_a_process_of_another_boot_or_container_is_not_judged(child):
    parts = owner._owner(child.pid).split(":")
    child.kill()
    child.wait()
    for index in (1, 2):
        assert not owner.is_gone(":".join([*parts[:index], "another", *parts[index + 1 :]]))
