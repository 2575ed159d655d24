"""How the models of the settings read a file: keys, texts, and every mistake at its place.

In: a YAML file's texts, lists and mappings. Out: values of the models' types, or one
`ValidationError` with all mistakes. A model's field says by a marker how it is read: `Reads` types
a text or a list, `Keys` reads a mapping into the model that the field is of. Markers act only where
a `File` is the context, so a model that code constructs takes typed values as they are.

No mistake shows what a mapping or an environment variable holds: it may be secret. Reading has no
effects.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

from pydantic import GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from ticdc_assets.base.errors import shorten

K = TypeVar("K", str, int)
T = TypeVar("T")
Check: TypeAlias = Callable[[Mapping[str, Any], ValidationInfo], Iterable[InitErrorDetails]]


@dataclass(frozen=True, slots=True)
class File:
    """What paths of a file are relative to, and the environment variables for `{env: NAME}`."""

    folder: Path
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True, repr=False)
class OptionValue:
    """The value of a client option; if it is secret, it is shown as where it came from instead."""

    value: str
    shown: str

    def __repr__(self) -> str:
        return self.shown

    def __str__(self) -> str:
        return self.shown


def mistake(text: str) -> PydanticCustomError:
    """Return the error that says `text` of the current value."""
    return PydanticCustomError("mistake", "{text}", {"text": text})


def unexpected(expected: str, got: Any) -> PydanticCustomError:
    """Return the error that `got` is there where `expected` was needed."""
    return mistake(f"expected {expected}, got {shorten(_masked(got))}")


def at(place: str | int, error: PydanticCustomError) -> InitErrorDetails:
    """Return an error as one of a value inside the current value."""
    return InitErrorDetails(type=error, loc=(place,), input=None)


def refuse(mistakes: list[InitErrorDetails]) -> None:
    """Raise all of the mistakes, if there are any."""
    if mistakes:
        raise ValidationError.from_exception_data("settings", mistakes, hide_input=True)


def unknown_keys(
    given: Iterable[str], valid: Iterable[str]
) -> list[tuple[str, PydanticCustomError]]:
    """Return each key that is not known, and what may be meant by it."""
    keys = sorted(valid)
    return [
        (key, mistake(f"unknown key{did_you_mean(key, keys)}; known here: {', '.join(keys)}"))
        for key in sorted(set(given).difference(keys))
    ]


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint at the known key that is spelled alike, "" if none is."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _masked(value: Any) -> Any:
    """Return a value of the file without what its mappings hold."""
    match value:
        case dict():
            return dict.fromkeys(cast(dict[str, Any], value), "…")
        case list():
            return [_masked(item) for item in cast(list[Any], value)]
        case _:
            return value


@dataclass(frozen=True, slots=True)
class Reads:
    """How a field is read from a text or a list.

    Args:
        expected: what has to be there, in words.
        read: returns the typed value; raises ValueError for any other value, or its own mistakes.
        key: the key in the file, "" for the field's name.
    """

    expected: str
    read: Callable[[Any, ValidationInfo], Any]
    key: str = ""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        def validate(value: Any, inner: Callable[[Any], Any], info: ValidationInfo) -> Any:
            # A file has only texts, lists and mappings: anything else is a typed default.
            if info.context is None or not isinstance(value, str | list | dict):
                return inner(value)
            try:
                return self.read(value, info)
            except (ValidationError, PydanticCustomError):
                raise
            except (ValueError, OSError, RuntimeError):
                # RuntimeError: a path that begins with the home of a user who is not there.
                raise unexpected(self.expected, value) from None

        return core_schema.with_info_wrap_validator_function(validate, handler(source))


def reads(expected: str, key: str = "") -> Callable[[Callable[[Any, ValidationInfo], Any]], Reads]:
    """Return the decorator that turns a function into a marker `Reads`."""
    return lambda read: Reads(expected, read, key)


@reads("true or false")
def flag(value: Any, _: ValidationInfo) -> bool:
    """Read true or false."""
    return bool(("false", "true").index(value))


@dataclass(frozen=True, slots=True)
class Keys:
    """How a field is read whose type is a model: from a mapping with the model's keys.

    `check` returns other mistakes of the mapping, also those of its values.
    """

    expected: str
    check: Check = lambda value, info: ()

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        fields = fields_of(source)

        def validate(value: Any, inner: Callable[[Any], Any], info: ValidationInfo) -> Any:
            if info.context is None or not isinstance(value, str | list | dict):
                return inner(value)
            try:
                given = mapping(value)
            except ValueError:
                raise unexpected(self.expected, value) from None
            keys = {key for key, _ in fields.values()}
            mistakes = [at(*unknown) for unknown in unknown_keys(given, keys)]
            mistakes += self.check(given, info)
            try:
                result = inner(
                    {name: given[key] for name, (key, _) in fields.items() if key in given}
                )
            except ValidationError as error:
                mistakes += [_inside(entry, fields) for entry in error.errors(include_input=False)]
                result = None
            refuse(mistakes)
            return result

        return core_schema.with_info_wrap_validator_function(validate, handler(source))


def fields_of(model: Any) -> dict[str, tuple[str, FieldInfo]]:
    """Return the key in the file and the description of each field of a model, by its name.

    Of `Model | None` it is the model that is meant.
    """
    models = [model, *getattr(model, "__args__", ())]
    (fields,) = (it.__pydantic_fields__ for it in models if hasattr(it, "__pydantic_fields__"))
    return {
        name: (getattr(_marker(field), "key", "") or name, field)
        for name, field in cast(dict[str, FieldInfo], fields).items()
    }


def _marker(field: FieldInfo) -> Reads | Keys:
    return next(marker for marker in field.metadata if isinstance(marker, Reads | Keys))


def _inside(error: Any, fields: Mapping[str, tuple[str, FieldInfo]]) -> InitErrorDetails:
    """Return an error of a field as an error of the key that the field has in the file."""
    name, *inside = error["loc"]
    key, field = fields[name]
    missing = error["type"] == "missing" and not inside
    text = f"missing; expected {_marker(field).expected}" if missing else error["msg"]
    return InitErrorDetails(type=mistake(text), loc=(key, *inside), input=None)


def matched(pattern: re.Pattern[str], value: Any) -> re.Match[str]:
    """Return the match of a whole text; ValueError for any other text."""
    match = pattern.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(pattern.pattern)
    return match


def mapping(value: Any) -> dict[str, Any]:
    """Return a mapping, whose keys are texts in a file; ValueError for anything else."""
    if isinstance(value, dict):
        return cast(dict[str, Any], value)
    raise ValueError(value)


def items_of(value: Any, each: Callable[[Any], T], what: str) -> tuple[T, ...]:
    """Return the items of a list that is not empty, typed by `each`; no item is there twice."""
    if not isinstance(value, list) or not value:
        raise ValueError(what)
    given = cast(list[Any], value)

    def typed(number: int, item: Any) -> T:
        if item in given[:number]:
            raise unexpected(f"each {what} once", item)
        return each(item)

    items, mistakes = values_of(enumerate(given), typed)
    refuse(mistakes)
    return tuple(items.values())


def values_of(
    given: Iterable[tuple[K, Any]], each: Callable[[K, Any], T]
) -> tuple[dict[K, T], list[InitErrorDetails]]:
    """Return the values at some places, typed by `each`, and the mistakes of the others."""
    values: dict[K, T] = {}
    mistakes: list[InitErrorDetails] = []
    for place, value in given:
        try:
            values[place] = each(place, value)
        except PydanticCustomError as error:
            mistakes.append(at(place, error))
    return values, mistakes


def scalar(value: Any, info: ValidationInfo, expected: str) -> OptionValue:
    """Return a text, resolved if it is `{env: NAME}`; a mistake does not show it."""
    reference = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    if reference.keys() == {"env"}:
        name = reference["env"]
        resolved = cast(File, info.context).env.get(name) if isinstance(name, str) else None
        if not resolved:
            shown = shorten(_masked(name))
            raise mistake(f"the environment variable {shown} is not set or is empty")
        return OptionValue(resolved, f"{{env: {name}}}")
    if not isinstance(value, str) or not value:
        kind = "empty text" if value == "" else "a mapping" if reference else "a list"
        raise mistake(f"expected {expected}, got {kind}")
    return OptionValue(value, value)
