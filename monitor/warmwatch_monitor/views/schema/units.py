"""Units of the answer's numbers: the schema names them beside the type."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Seconds = Annotated[float, Field(json_schema_extra={"x-unit": "s"})]
Epoch = Annotated[float, Field(json_schema_extra={"x-unit": "s since the epoch"})]
Joules = Annotated[float, Field(json_schema_extra={"x-unit": "J"})]
