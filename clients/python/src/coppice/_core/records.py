"""Parses the records of the service. Unknown fields are ignored: a newer service may send them."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

Record = TypeVar("Record")
_Reader = Callable[[Any, str], Any]


def parse_record(kind: type[Record]) -> Callable[[Any], Record]:
    """Returns a function that parses a record of this class. It raises `TypeError` for a value of another shape."""
    read = _reader(typing.cast(Any, kind))
    return lambda value: typing.cast(Record, read(value, kind.__name__))


def parse_list(parse: Callable[[Any], Record]) -> Callable[[Any], list[Record]]:
    """Returns a function that parses a list, each item with `parse`."""

    def parse_items(value: Any) -> list[Record]:
        if not isinstance(value, list):
            raise TypeError("the answer is not a list")
        return [parse(item) for item in value]

    return parse_items


def _record_reader(kind: type[Any]) -> _Reader:
    hints = typing.get_type_hints(kind)
    # `from` is a keyword, so its attribute is `from_`.
    readers = [(one.name, one.name.rstrip("_"), _reader(hints[one.name])) for one in dataclasses.fields(kind)]

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{where} is not an object")
        return kind(**{name: read_one(value.get(wire), wire) for name, wire, read_one in readers})

    return read


@functools.cache
def _reader(hint: Any) -> _Reader:
    """Returns the reader of a type. The annotations of a class are evaluated once, not in each call."""
    if hint is Any:
        return lambda value, _: value
    if isinstance(hint, types.UnionType):
        [inner] = [one for one in typing.get_args(hint) if one is not types.NoneType]
        read_inner = _reader(inner)
        return lambda value, where: None if value is None else read_inner(value, where)
    if typing.get_origin(hint) is list:
        return _list_reader(_reader(typing.get_args(hint)[0]))
    if typing.get_origin(hint) is dict:
        return _map_reader(_reader(typing.get_args(hint)[1]))
    if dataclasses.is_dataclass(hint):
        return _record_reader(typing.cast(type[Any], hint))
    return _scalar_reader(hint)


def _list_reader(read_item: _Reader) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, list):
            raise TypeError(f"{where} is not a list")
        return [read_item(item, where) for item in value]

    return read


def _map_reader(read_item: _Reader) -> _Reader:
    def read(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{where} is not an object")
        return {name: read_item(item, where) for name, item in value.items()}

    return read


def _scalar_reader(kind: type[Any]) -> _Reader:
    # JSON has one kind of number; `bool` is a subclass of `int`.
    accepted = (int, float) if kind is float else (kind,)

    def read(value: Any, where: str) -> Any:
        if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{where} is not of type {kind.__name__}")
        return value

    return read
