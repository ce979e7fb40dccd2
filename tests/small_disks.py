"""Scripts that run on a small file system of their own."""

import subprocess
import sys

import pytest


def on_a_small_disk(tmp_path, script, *arguments, options="size=8m"):
    """What the script prints that has a file system of 8 MiB at its first argument."""
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    small = f"mount -t tmpfs -o {options} tmpfs {tmp_path}"
    if sys.platform != "linux" or subprocess.run([*mount, small], capture_output=True, check=False).returncode:
        pytest.skip("this machine lets no user mount a small file system")
    command = [*mount, f'{small} && exec "$0" -c "$@"', sys.executable, script, str(tmp_path), *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert not ran.returncode, ran.stderr
    return ran.stdout
