"""What is made of a Snapshot, in rooms by what they make.

``words``: sentences and evidence, the one place where English is written. ``series``: families with
their samples, for /metrics, OTLP and others' registries. ``answer``: the JSON of /status. All read
the Snapshot and the figures in it, and nothing else.
"""
