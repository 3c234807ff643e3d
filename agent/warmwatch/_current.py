"""What is attached to this process, apart from what attaching takes.

The monitor imports this package too, for the record and the verdict; so ``import warmwatch`` loads
nothing of the agent before something is attached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warmwatch._attached import Attached

attached: Attached | None = None
