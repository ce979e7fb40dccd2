"""A broker of Kafka for a while, and a schema registry that speaks the protocol of Confluent's.

The broker is Kafka's own, started by its Java classes as the only node of a cluster. Confluent's registry is not on
Maven Central, so the one here is written for these tests: schemas by their ids, behind a password.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.debezium import Registered
from tests.waiting import unclaimed_port, until

ROOT = Path(__file__).parents[2]
USER, PASSWORD = "lakebed", "open sesame"
ANSWER_S = 60

_SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
log.dirs={folder}/data
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=100
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
auto.create.topics.enable=false
"""


def unclaimed_ports(count):
    """Ports that no process has, each another one."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            ports.append(unclaimed_port())
            held.enter_context(socket.socket()).bind(("127.0.0.1", ports[-1]))
        return ports


@dataclass
class Broker:
    """Its folder and its ports: without authentication, and with."""

    jars: Path
    folder: Path
    port: int
    sasl: int
    process: subprocess.Popen | None = None
    _admin: AdminClient | None = None

    @classmethod
    def make(cls) -> Broker:
        """A new broker, running."""
        script = subprocess.run([ROOT / "scripts/ensure-kafka"], capture_output=True, text=True, check=False)
        assert script.returncode == 0, script.stderr
        folder = Path(tempfile.mkdtemp(prefix="lakebed-kafka-"))
        names = ("port", "sasl", "controller")
        ports = dict(zip(names, unclaimed_ports(len(names)), strict=True))
        broker = cls(Path(script.stdout.strip()), folder, ports["port"], ports["sasl"])
        settings = _SETTINGS.format(folder=folder, user=USER, password=PASSWORD, **ports)
        (folder / "server.properties").write_text(settings, "utf-8")
        identity = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "a")
        made = broker.java("kafka.tools.StorageTool", "format", "-t", identity, "-c").wait()
        assert made == 0, (folder / "log.txt").read_text("utf-8")
        broker.start()
        return broker

    def java(self, *words: str) -> subprocess.Popen:
        java = Path(os.environ["JAVA_HOME"]) / "bin/java" if "JAVA_HOME" in os.environ else "java"
        light = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{self.jars}/*")
        with (self.folder / "log.txt").open("ab") as log:
            return subprocess.Popen([java, *light, *words, self.folder / "server.properties"], stdout=log, stderr=log)

    def start(self) -> None:
        """Returns when it answers."""
        self.process = self.java("kafka.Kafka")

        def answers():
            assert self.process.poll() is None, (self.folder / "log.txt").read_text("utf-8")
            with suppress(Exception):
                return self.topics() is not None

        until(answers)

    def stop(self) -> None:
        """Kill it, as if it had crashed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def url(self, topics: str) -> str:
        return f"kafka://{self.address}/{topics}"

    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        return self._admin

    def topics(self):
        return self.admin().list_topics(timeout=ANSWER_S).topics

    def producer(self, **settings) -> Producer:
        """One that keeps the order of messages when it repeats some, as that of a connector does."""
        ordered = {"enable.idempotence": True, "linger.ms": 5}
        return Producer({"bootstrap.servers": self.address, "log_level": 0, **ordered, **settings})

    def make_topic(self, name, partitions=1, **config):
        config = {key.replace("_", "."): str(value) for key, value in config.items()}
        for made in self.admin().create_topics([NewTopic(name, partitions, 1, config=config)]).values():
            made.result()

    def drop_topic(self, name):
        for dropped in self.admin().delete_topics([name]).values():
            dropped.result()
        until(lambda: name not in self.topics())


@dataclass
class Registry:
    """A schema registry on the loopback interface. ``down``: it answers nothing of use."""

    schemas: Registered = field(default_factory=Registered)
    password: str | None = None
    down: bool = False
    asked: list[str] = field(default_factory=list)

    def __post_init__(self):
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                registry.asked.append(self.path)
                self.answer(*registry.answer(self.path, self.headers.get("Authorization")))

            def answer(self, status, document):
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path, authorization):
        if self.down:
            return 503, {"error_code": 50003, "message": "Error while forwarding the request to the primary"}
        if self.password is not None:
            wanted = "Basic " + base64.b64encode(f"{USER}:{self.password}".encode()).decode()
            if authorization != wanted:
                return 401, {"error_code": 401, "message": "Unauthorized"}
        number = int(path.removeprefix("/schemas/ids/"))
        if not 1 <= number <= len(self.schemas.texts):
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        return 200, {"schema": self.schemas.texts[number - 1]}

    def close(self):
        self._server.shutdown()
        self._server.server_close()
