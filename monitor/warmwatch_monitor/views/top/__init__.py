"""``warmwatch top``: one ``/status`` answer after another as a screen that is worked with.

``listing`` and ``detail`` make rows and lines of an answer, ``seen`` keeps what the plots show,
``chart`` draws it; all of them know no terminal. ``app`` is what Textual sees of it.
"""
