"""What ``warmwatch check`` found: for a terminal, a job's summary, a CI server, a program. Pure."""
