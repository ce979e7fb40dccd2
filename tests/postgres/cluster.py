"""A PostgreSQL server for a while: in a folder of its own, on the loopback interface, durable as a real one."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import unclaimed_port

ROOT = Path(__file__).parents[2]
USER = "lakebed"
PASSWORD = "open sesame"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Its programs, its folder and its port. Clients take the password from PGPASSWORD."""

    bin: Path
    folder: Path
    port: int

    @classmethod
    def make(cls) -> Cluster:
        """A new cluster, running, with the database ``lakebed``."""
        script = subprocess.run([ROOT / "scripts/ensure-postgres"], capture_output=True, text=True, check=False)
        assert script.returncode == 0, script.stderr
        folder = Path(tempfile.mkdtemp(prefix="lakebed-pg-"))
        cluster = cls(Path(script.stdout.strip()), folder, unclaimed_port())
        password = folder / "password"
        password.write_text(PASSWORD, "utf-8")
        if os.geteuid() == 0:
            for path in (folder, password):
                shutil.chown(path, server_user())
        data = folder / "data"
        cluster.run("initdb", "--auth=scram-sha-256", f"--username={USER}", f"--pwfile={password}", "-D", data)
        with (data / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"port = {cluster.port}\nlisten_addresses = '127.0.0.1'\n")
            settings.write(f"unix_socket_directories = '{folder}'\nwal_level = logical\n")
        cluster.start()
        cluster.sql("CREATE DATABASE lakebed", database="postgres")
        return cluster

    def start(self) -> None:
        """Returns when it takes connections."""
        self.run("pg_ctl", "-w", "-D", self.folder / "data", "-l", self.folder / "server.txt", "start")

    def stop(self, mode: str = "fast") -> None:
        """``immediate`` is as if it had crashed."""
        self.run("pg_ctl", "-w", "-D", self.folder / "data", "-m", mode, "stop")

    def remove(self) -> None:
        """Stop it, if it runs, and take its folder away."""
        with suppress(subprocess.CalledProcessError):
            self.stop("immediate")
        shutil.rmtree(self.folder)

    def url(self, database: str = "lakebed", user: str = USER) -> str:
        """Over TCP."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def sql(self, *statements: str, database: str = "lakebed") -> list[tuple[Any, ...]]:
        """Run statements as the owner of everything; the rows of the last one, if it has any."""
        import psycopg

        with psycopg.connect(self.url(database), password=PASSWORD, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def run(self, program: str, *words: object) -> None:
        """The server refuses to run as root, so root runs it as another."""
        other: dict[str, Any] = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam(server_user())
            other = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "HOME": str(self.folder)}
        environment.pop("PGPASSWORD", None)
        # Not a pipe: the server keeps what it was given, and a pipe would never end.
        with (self.folder / "said.txt").open("w+", encoding="utf-8") as said:
            try:
                command = [str(self.bin / program), *map(str, words)]
                subprocess.run(
                    command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                    check=True, timeout=120, **other,
                )  # fmt: skip
            except subprocess.CalledProcessError as error:
                said.seek(0)
                error.add_note(said.read())
                raise


def server_user() -> str:
    """The user as which root runs a server."""
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise AssertionError("neither of the users of unprivileged servers is there")
