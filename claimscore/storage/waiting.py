"""Waiting for a store so that Ctrl-C is heard."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")

_LOOK_S = 0.5


def interruptible(call: Callable[[], T]) -> T:
    """The call's result; in the main thread, an interrupt is raised at once.

    obstore hears no signals while it waits or tries again, which may be a minute: so another
    thread waits for it. What was under way when the interrupt came may still be done.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as exc:  # raised where it is waited for
            answer.set_exception(exc)

    threading.Thread(target=work, name="object store", daemon=True).start()
    while not wait((answer,), timeout=_LOOK_S).done:
        pass  # a signal that came just before the wait began is heard now
    return answer.result()
