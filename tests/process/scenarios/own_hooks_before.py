"""The user's hooks on functions that the agent wraps, installed before it, removed midway."""

import own_hooks  # noqa: F401 - the same, attached late

EXPECT = {
    "long": True,
    "states": "compiling warming warm recompiling warm",
    "categories": "shape",
    "env": {"SCENARIO_LATE": "1"},
}
