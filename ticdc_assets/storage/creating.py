"""placeholder"""

import os
import uuid
from pathlib import Path

from ticdc_assets.storage.paths import AnyPath


def create(path: AnyPath, data: bytes) -> None:
    assert isinstance(path, Path)
    staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    staged.write_bytes(data)
    try:
        os.link(staged, path)
    finally:
        staged.unlink()
