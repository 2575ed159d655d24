"""pyarrow has no type information: whatever comes from it is of any type."""

from typing import Any

def __getattr__(name: str) -> Any: ...
