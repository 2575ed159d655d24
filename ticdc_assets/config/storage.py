"""How the store of a lake is reached that is no folder: the block `storage:` of the file.

In: the block. Out: a `Storage`, which the three libraries that touch a lake are told of
(`ticdc_assets.storage`). A secret has to be given as `{env: NAME}`; without any credential those of
the platform are taken. Which keys a store has a use for is looked at where the lake's URI is known.
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
    found = scalar(value, info, _secret.expected)
    if not isinstance(value, dict):
        raise mistake(f"expected {FROM_ENV}, got a value")
    return found.value


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
        """Return what the block says."""
        return Storage(**{name: getattr(self, name) for name in Storage.__slots__})
