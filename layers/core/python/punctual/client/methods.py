"""Descriptors that turn a call function into a method of both clients.

A call is one function with typed arguments and a typed answer. The descriptors keep its
signature and docstring.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from inspect import Signature, signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from punctual.client.call_steps import Core, Steps, Stream

P = ParamSpec("P")
T = TypeVar("T")


class Doer(Protocol):
    """Carries out the steps of a call, one after the other."""

    core: Core

    def do(self, steps: Steps[T]) -> T: ...
    def give(self, stream: Stream[T]) -> Iterator[T]: ...


class AsyncDoer(Protocol):
    core: Core

    async def do(self, steps: Steps[T]) -> T: ...
    def give(self, stream: Stream[T]) -> AsyncIterator[T]: ...


class Group:
    """Calls on one kind of resource."""

    def __init__(self, doer: Doer) -> None:
        self._doer = doer


class AsyncGroup:
    def __init__(self, doer: AsyncDoer) -> None:
        self._doer = doer


class _Method(Generic[P, T]):
    def __init__(self, call: Callable[Concatenate[Core, P], Any]) -> None:
        self._call = call
        self.__doc__ = call.__doc__
        whole = signature(call)
        given = list(whole.parameters.values())[1:]
        self.__signature__ = whole.replace(parameters=given, return_annotation=Signature.empty)

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__, self.__qualname__ = name, f"{owner.__qualname__}.{name}"

    def _bound(self, core: Core, way: Callable[[Any], Any]) -> Any:
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return way(self._call(core, *args, **kwargs))

        method.__name__, method.__qualname__ = self.__name__, self.__qualname__
        method.__doc__ = self.__doc__
        method.__signature__ = self.__signature__  # type: ignore[attr-defined]
        return method


class Does(_Method[P, T]):
    def __init__(self, call: Callable[Concatenate[Core, P], Steps[T]]) -> None:
        super().__init__(call)

    @overload
    def __get__(self, group: None, owner: type) -> "Does[P, T]": ...
    @overload
    def __get__(self, group: Group, owner: type) -> Callable[P, T]: ...
    def __get__(self, group: Group | None, owner: type) -> "Does[P, T] | Callable[P, T]":
        if group is None:
            return self
        found: Callable[P, T] = self._bound(group._doer.core, group._doer.do)
        return found


class Gives(_Method[P, T]):
    def __init__(self, call: Callable[Concatenate[Core, P], Stream[T]]) -> None:
        super().__init__(call)

    @overload
    def __get__(self, group: None, owner: type) -> "Gives[P, T]": ...
    @overload
    def __get__(self, group: Group, owner: type) -> Callable[P, Iterator[T]]: ...
    def __get__(self, group: Group | None, owner: type) -> "Gives[P, T] | Callable[P, Iterator[T]]":
        if group is None:
            return self
        found: Callable[P, Iterator[T]] = self._bound(group._doer.core, group._doer.give)
        return found


class AsyncDoes(_Method[P, T]):
    def __init__(self, call: Callable[Concatenate[Core, P], Steps[T]]) -> None:
        super().__init__(call)

    @overload
    def __get__(self, group: None, owner: type) -> "AsyncDoes[P, T]": ...
    @overload
    def __get__(self, group: AsyncGroup, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(
        self, group: AsyncGroup | None, owner: type
    ) -> "AsyncDoes[P, T] | Callable[P, Coroutine[Any, Any, T]]":
        if group is None:
            return self
        found: Callable[P, Coroutine[Any, Any, T]] = self._bound(group._doer.core, group._doer.do)
        return found


class AsyncGives(_Method[P, T]):
    def __init__(self, call: Callable[Concatenate[Core, P], Stream[T]]) -> None:
        super().__init__(call)

    @overload
    def __get__(self, group: None, owner: type) -> "AsyncGives[P, T]": ...
    @overload
    def __get__(self, group: AsyncGroup, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(
        self, group: AsyncGroup | None, owner: type
    ) -> "AsyncGives[P, T] | Callable[P, AsyncIterator[T]]":
        if group is None:
            return self
        found: Callable[P, AsyncIterator[T]] = self._bound(group._doer.core, group._doer.give)
        return found
