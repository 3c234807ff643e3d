"""What every room may import: settings, credentials, errors, the clock, timeouts, bounded files."""
