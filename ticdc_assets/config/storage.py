"""How to reach the store of a lake that is not a folder: the block `storage:` of the file.

In: the block. Out: a `Storage`, from which `ticdc_assets.storage` sets the three libraries that
read and write a lake. A secret must be given as `{env: NAME}`; without credentials the platform's
are used. Where the lake's URI is known, `storage` checks which keys its store can use.
"""

from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import ValidationInfo
from pydantic.dataclasses import dataclass

from ticdc_assets.config.reading import flag, mistake, reads, scalar, unexpected
from ticdc_assets.config.sources import FROM_ENV, MODEL
from ticdc_assets.storage.stores import Storage


@reads("a URL like http://127.0.0.1:9000")
def _endpoint(value: Any, info: ValidationInfo) -> str:
    given = scalar(value, info, _endpoint.expected)
    parsed = urlsplit(given.value)
    if parsed.scheme not in ("http", "https") or not parsed.hostname or "@" in parsed.netloc:
        raise unexpected(_endpoint.expected, given)
    return given.value.rstrip("/")


@reads("a text, or {env: NAME}")
def _text(value: Any, info: ValidationInfo) -> str:
    return scalar(value, info, _text.expected).value


@reads(FROM_ENV)
def _secret(value: Any, info: ValidationInfo) -> str:
    secret = scalar(value, info, _secret.expected)
    if not isinstance(value, dict):
        raise mistake(f"expected {FROM_ENV}, got a value")
    return secret.value


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, config=MODEL)
class StorageBlock:
    """The block `storage:`; see `Storage`."""

    endpoint: Annotated[str | None, _endpoint] = None
    region: Annotated[str | None, _text] = None
    path_style: Annotated[bool | None, flag] = None
    access_key: Annotated[str | None, _secret] = None
    secret_key: Annotated[str | None, _secret] = None
    session_token: Annotated[str | None, _secret] = None
    account_key: Annotated[str | None, _secret] = None
    tenant_id: Annotated[str | None, _text] = None
    client_id: Annotated[str | None, _text] = None
    client_secret: Annotated[str | None, _secret] = None

    def storage(self) -> Storage:
        """Return the settings of the block."""
        return Storage(**{name: getattr(self, name) for name in Storage.__slots__})
