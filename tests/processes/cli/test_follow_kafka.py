"""What a person sees of a broker that does not answer; tests/kafka has those that do."""

import subprocess
import sys

from tests.waiting import WAIT_S

PROGRAM = """
import sys
import lakebed
from lakebed.upkeep.follow.change_sources import SourceOptions
from lakebed.upkeep.follow.kafka_source import KafkaSource

source = KafkaSource("kafka://127.0.0.1:1/orders", "orders", (), SourceOptions())
source.answer_s = 1.0
try:
    source.open(None)
except lakebed.errors.StorageError as error:
    print(error.message)
    sys.exit(3)
"""


def test_the_client_of_kafka_writes_nothing_itself() -> None:
    """It has a line for each attempt to connect: a thousand in twelve seconds."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert (ran.returncode, ran.stderr) == (3, "")
    assert "is there a broker at 127.0.0.1:1" in ran.stdout
