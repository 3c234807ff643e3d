"""What a value may be, held where the user gives it and again where a record is read. Pure.

Here and not in ``record``, so that attaching does without the record, which takes most of the
time of an import.
"""

from __future__ import annotations

TEXT_LIMIT = 200  # characters of a name
LARGEST = 2**53  # every whole number up to here survives JSON and a Prometheus sample
LARGEST_AMOUNT = 1e300  # with room to multiply and divide in
MOST_RANKS = 1_000_000  # of a run, and restarts: more than any launcher starts
MOST_OPTIONS = 50  # of those that torch.compile was given
VERDICTS = ("hit", "miss", "bypass")  # of a compile cache that was asked
DTYPES = ("bfloat16", "float16", "float8", "tf32", "float32")  # in which a GPU computes
