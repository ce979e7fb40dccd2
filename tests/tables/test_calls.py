"""How many Python calls, through how many modules, one warm lookup takes: what its time is made of.

A count is the same on every machine, so a budget on it holds where an asserted time would not.
"""

import gc
import sys
from collections import Counter

import pyarrow as pa
import pytest

import lakebed

CALLS_MAX = 95
MODULES_MAX = 15
"""What a warm get takes on Python 3.11; later versions call no function for a comprehension. Only ever lowered, but for
two calls and three modules when keys became of every plain type."""

ROWS = 50_000


@pytest.fixture
def table(tmp_path):
    """One file of 50 pages on local disk."""
    made = lakebed.create(tmp_path / "lake").create_table("t", lakebed.Schema({"k": "string"}, {}, {"v": "string"}))
    made.write(pa.table({"k": [f"key-{k:06}" for k in range(ROWS)], "v": [str(k) for k in range(ROWS)]}))
    # The write begins a checkpoint in a thread. Its end replaces the state by one that has nothing cached.
    made.log.wait_for_checkpoint()
    return made


def calls_of(act):
    """The Python functions of Lakebed that ``act`` calls, by module, each as often as it is called."""
    found = Counter()

    def note(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.partition(".")[0] == "lakebed":
            found[name, frame.f_code.co_qualname] += 1

    # A collection that falls into the call would count what it closes of other tests.
    gc.collect()
    gc.disable()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def shown(found):
    """The modules with their calls, and the functions of each, the most calls first."""
    modules = Counter()
    for (module, _), calls in found.items():
        modules[module] += calls
    lines = [f"{found.total()} calls (at most {CALLS_MAX}) through {len(modules)} modules (at most {MODULES_MAX})"]
    for module, calls in modules.most_common():
        functions = Counter({name: count for (of, name), count in found.items() if of == module})
        lines.append(f"{calls:5} {module}: {', '.join(f'{name} {count}' for name, count in functions.most_common())}")
    return "\n".join(lines)


def test_a_warm_get_keeps_its_budget_of_calls(table):
    for near in range(4):
        assert table.get(f"key-{ROWS // 2 + near:06}").num_rows == 1

    found = calls_of(lambda: table.get(f"key-{ROWS // 2:06}"))

    assert found.total() <= CALLS_MAX, shown(found)
    assert len({module for module, _ in found}) <= MODULES_MAX, shown(found)


def test_a_count_says_where_the_calls_are():
    found = calls_of(lambda: lakebed.Schema({"k": "int64"}))
    assert found["lakebed.model.schema", "Schema.__init__"] == 1
    assert "lakebed.model.schema: " in shown(found)
