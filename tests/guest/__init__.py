"""Proof that the agent is a guest: unusual trainings run with and without it, and are compared.

``scripts/`` holds the trainings, each a plain script that does not know of the agent. ``headers``
reads what a script needs, ``observing`` runs in its process and writes down what can be seen there,
``runs`` starts it, ``comparison`` finds the differences, and ``make guest`` (``__main__``) prints
them. To add a training, add a script.
"""
