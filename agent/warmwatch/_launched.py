"""Attaches as ``warmwatch run`` does: nobody has said that this process trains.

So it speaks when it does: at its first step or compile activity.
"""

from warmwatch import _lifecycle
from warmwatch._version import __version__

_lifecycle.attach(__version__, {}, quiet=True)
