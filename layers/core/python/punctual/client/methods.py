"""Descriptors that turn a call function into a method of both clients.

A call is one function with typed arguments and a typed answer. The descriptors keep its
signature and docstring.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from inspect import Signature, signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from punctual.client.call_steps import ClientSettings, Steps, Stream

P = ParamSpec("P")
T = TypeVar("T")


class StepRunner(Protocol):
    """Carries out the steps of a call, one after the other."""

    settings: ClientSettings

    def run_steps(self, steps: Steps[T]) -> T: ...
    def stream_items(self, stream: Stream[T]) -> Iterator[T]: ...


class AsyncStepRunner(Protocol):
    settings: ClientSettings

    async def run_steps(self, steps: Steps[T]) -> T: ...
    def stream_items(self, stream: Stream[T]) -> AsyncIterator[T]: ...


class Group:
    """Calls on one kind of resource."""

    def __init__(self, runner: StepRunner) -> None:
        self._runner = runner


class AsyncGroup:
    def __init__(self, runner: AsyncStepRunner) -> None:
        self._runner = runner


class _CallDescriptor(Generic[P, T]):
    def __init__(self, call: Callable[Concatenate[ClientSettings, P], Any]) -> None:
        self._call = call
        self.__doc__ = call.__doc__
        call_signature = signature(call)
        parameters = list(call_signature.parameters.values())[1:]
        self.__signature__ = call_signature.replace(
            parameters=parameters, return_annotation=Signature.empty
        )

    def __set_name__(self, owner: type, name: str) -> None:
        self.__name__, self.__qualname__ = name, f"{owner.__qualname__}.{name}"

    def _bind(self, settings: ClientSettings, execute: Callable[[Any], Any]) -> Any:
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return execute(self._call(settings, *args, **kwargs))

        method.__name__, method.__qualname__ = self.__name__, self.__qualname__
        method.__doc__ = self.__doc__
        method.__signature__ = self.__signature__  # type: ignore[attr-defined]
        return method


class CallMethod(_CallDescriptor[P, T]):
    def __init__(self, call: Callable[Concatenate[ClientSettings, P], Steps[T]]) -> None:
        super().__init__(call)

    @overload
    def __get__(self, group: None, owner: type) -> "CallMethod[P, T]": ...
    @overload
    def __get__(self, group: Group, owner: type) -> Callable[P, T]: ...
    def __get__(self, group: Group | None, owner: type) -> "CallMethod[P, T] | Callable[P, T]":
        if group is None:
            return self
        method: Callable[P, T] = self._bind(group._runner.settings, group._runner.run_steps)
        return method


class StreamMethod(_CallDescriptor[P, T]):
    def __init__(self, call: Callable[Concatenate[ClientSettings, P], Stream[T]]) -> None:
        super().__init__(call)

    @overload
    def __get__(self, group: None, owner: type) -> "StreamMethod[P, T]": ...
    @overload
    def __get__(self, group: Group, owner: type) -> Callable[P, Iterator[T]]: ...
    def __get__(
        self, group: Group | None, owner: type
    ) -> "StreamMethod[P, T] | Callable[P, Iterator[T]]":
        if group is None:
            return self
        method: Callable[P, Iterator[T]] = self._bind(
            group._runner.settings, group._runner.stream_items
        )
        return method


class AsyncCallMethod(_CallDescriptor[P, T]):
    def __init__(self, call: Callable[Concatenate[ClientSettings, P], Steps[T]]) -> None:
        super().__init__(call)

    @overload
    def __get__(self, group: None, owner: type) -> "AsyncCallMethod[P, T]": ...
    @overload
    def __get__(self, group: AsyncGroup, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(
        self, group: AsyncGroup | None, owner: type
    ) -> "AsyncCallMethod[P, T] | Callable[P, Coroutine[Any, Any, T]]":
        if group is None:
            return self
        method: Callable[P, Coroutine[Any, Any, T]] = self._bind(
            group._runner.settings, group._runner.run_steps
        )
        return method


class AsyncStreamMethod(_CallDescriptor[P, T]):
    def __init__(self, call: Callable[Concatenate[ClientSettings, P], Stream[T]]) -> None:
        super().__init__(call)

    @overload
    def __get__(self, group: None, owner: type) -> "AsyncStreamMethod[P, T]": ...
    @overload
    def __get__(self, group: AsyncGroup, owner: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(
        self, group: AsyncGroup | None, owner: type
    ) -> "AsyncStreamMethod[P, T] | Callable[P, AsyncIterator[T]]":
        if group is None:
            return self
        method: Callable[P, AsyncIterator[T]] = self._bind(
            group._runner.settings, group._runner.stream_items
        )
        return method
