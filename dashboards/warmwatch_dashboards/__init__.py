"""The Grafana dashboards of Warmwatch, as code; ``python -m warmwatch_dashboards`` writes the JSON.

Needs ``grafana-foundation-sdk`` (the dependency group ``dashboards``), and nothing of Warmwatch.
"""
