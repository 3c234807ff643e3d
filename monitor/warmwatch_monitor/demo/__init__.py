"""What ``warmwatch demo`` runs: a training as a user would write it."""
