"""Runs a training as ``__main__``, observed by ``observer``."""

from guest import observer

__file__, observer = observer.begin()
exec(observer, globals())
