"""The tables of the history, by version; ``docs/history.md`` says what is in them.

``MIGRATIONS[n]`` makes version n + 1 of version n, within one transaction. What was released is
never changed: a change is one entry more.
"""

from __future__ import annotations

_RUNS = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY NOT NULL,
  start TEXT,
  run TEXT NOT NULL,
  name TEXT NOT NULL,
  owner TEXT,
  host TEXT,
  state TEXT NOT NULL,
  began REAL NOT NULL,
  ended REAL,
  seen REAL NOT NULL,
  summary TEXT NOT NULL,
  world_size INTEGER,
  ranks INTEGER NOT NULL,
  steps INTEGER,
  first_step_seconds REAL,
  step_seconds REAL,
  warmup_seconds REAL,
  compile_seconds REAL,
  compilations INTEGER,
  recompiles INTEGER,
  script TEXT,
  "commit" TEXT,
  code TEXT,
  torch TEXT,
  gpu TEXT,
  mode TEXT,
  what TEXT NOT NULL
)
"""
_RANKS = """
CREATE TABLE ranks (
  id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  state TEXT,
  attached REAL,
  steps INTEGER,
  step_seconds REAL,
  compile_seconds REAL,
  left_out INTEGER NOT NULL,
  answer TEXT NOT NULL,
  PRIMARY KEY (id, rank)
)
"""
_COMPILATIONS = """
CREATE TABLE compilations (
  id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  number INTEGER NOT NULL,
  ended REAL NOT NULL,
  seconds REAL,
  step INTEGER,
  compile_id TEXT,
  kind TEXT NOT NULL,
  name TEXT,
  file TEXT,
  line INTEGER,
  code TEXT,
  reason TEXT,
  category TEXT,
  cache TEXT,
  failure TEXT,
  ops INTEGER,
  kernels INTEGER,
  phase_seconds TEXT NOT NULL,
  PRIMARY KEY (id, rank, number)
)
"""
_SAMPLES = """
CREATE TABLE samples (
  id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
  rank INTEGER,
  gpu TEXT,
  seconds REAL NOT NULL,
  began REAL NOT NULL,
  after TEXT NOT NULL,
  columns TEXT NOT NULL
)
"""
# a row for each moment: what `samples` holds in lists
_RANK_SAMPLES = """
CREATE VIEW rank_samples AS
SELECT s.id, s.rank, s.began + a.value AS at, s.seconds,
  json_extract(s.columns, '$.steps[' || a.key || ']') AS steps,
  json_extract(s.columns, '$.step_seconds[' || a.key || ']') AS step_seconds,
  json_extract(s.columns, '$.compile_seconds[' || a.key || ']') AS compile_seconds,
  json_extract(s.columns, '$.state[' || a.key || ']') AS state,
  json_extract(s.columns, '$.phase[' || a.key || ']') AS phase
FROM samples AS s, json_each(s.after) AS a WHERE s.rank IS NOT NULL
"""
_GPU_SAMPLES = """
CREATE VIEW gpu_samples AS
SELECT s.id, s.gpu, s.began + a.value AS at, s.seconds,
  json_extract(s.columns, '$.utilization_ratio[' || a.key || ']') AS utilization_ratio,
  json_extract(s.columns, '$.power_watts[' || a.key || ']') AS power_watts,
  json_extract(s.columns, '$.memory_used_bytes[' || a.key || ']') AS memory_used_bytes
FROM samples AS s, json_each(s.after) AS a WHERE s.gpu IS NOT NULL
"""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        _RUNS,
        "CREATE INDEX runs_by_began ON runs (began)",
        "CREATE INDEX runs_by_name ON runs (name, began)",
        "CREATE INDEX runs_by_seen ON runs (seen)",
        "CREATE INDEX runs_by_start ON runs (start)",
        _RANKS,
        _COMPILATIONS,
        _SAMPLES,
        "CREATE INDEX samples_by_run ON samples (id)",
        _RANK_SAMPLES,
        _GPU_SAMPLES,
    ),
    ("ALTER TABLE ranks ADD COLUMN first_step_bytes INTEGER",),
)
