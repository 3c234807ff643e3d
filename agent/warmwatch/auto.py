"""``import warmwatch.auto`` attaches the agent, from the environment alone."""

from warmwatch import attach

attach()
