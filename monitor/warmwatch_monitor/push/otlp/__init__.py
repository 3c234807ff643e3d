"""OTLP, with OpenTelemetry's SDK. Imported only where the export is switched on; no other module of
Warmwatch's imports OpenTelemetry.
"""

from __future__ import annotations

from warmwatch_monitor.push.otlp.exporter import OtlpExporter

__all__ = ["OtlpExporter"]
