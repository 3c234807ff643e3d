"""``import warmwatch.auto`` attaches the agent, from the environment alone."""

from warmwatch.lifecycle.api import attach

attach()
