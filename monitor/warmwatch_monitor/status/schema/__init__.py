"""The ``/status`` document as types: they encode it, decode and check it in a client, and make
the JSON Schema of ``/docs`` and ``/openapi.json``.

Each key is one field. The text below it becomes its description: what it is, its unit, and when
it is null. A key that a daemon of another release may not send has a default.
"""
