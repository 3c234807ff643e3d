"""The monitor: reads records and the host, judges, and publishes the answer."""
