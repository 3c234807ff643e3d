"""Fuzzing of everything that Warmwatch reads and has not written itself.

A *target* is one input, on its real way through the program (``targets.py`` lists them). It takes
bytes, which :class:`fuzz.choices.Choices` turns into decisions: which field is changed into what,
or that the bytes are taken as they are. So one target serves three engines:

- ``test_targets.py``, in every run of the tests: hypothesis, always the same examples;
- ``python -m fuzz`` (``make fuzz``): atheris, guided by coverage, for a time of your choice;
- ``python -m fuzz --random``: many random inputs in little time, in one look each.

An exception of a target is a finding. It is stored in ``corpus/TARGET/``, whose files the tests
replay.
"""
