"""``warmwatch report``: where the time of a run went, on one page.

A change begins in ``parts.py`` (a figure), ``assembly.py`` (its computation), ``wording.py`` (its
sentence), ``html.py`` (its looks).
"""
