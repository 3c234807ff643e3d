"""``warmwatch report``: where the time of a run went, on one page.

A change begins in ``parts.py`` (a figure), ``whole.py`` (its computation), ``wording.py`` (its
sentence), ``html.py`` (its looks).
"""
