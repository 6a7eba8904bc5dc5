"""Budget of one compilation: limits on nodes, characters and CPU time that every compiler pass counts against."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError

from cordwood.errors import CompilationTimeout, CompilerFailed, PlanTooLarge, QueryRefused

# The number of nodes that all compiler passes together may visit or create. Visiting 100,000 nodes takes 0.7 s. The
# largest known client query needs 8,700 nodes.
MAX_COMPILATION_NODES: Final = 100_000
# The number of characters that the printer may write. The characters of a nested expression are counted once for each
# level of nesting. The largest known client query needs 206,000 characters.
MAX_PRINTED_CHARACTERS: Final = 4_000_000
# The limit on CPU seconds. If wall-clock time were limited, a busy machine would refuse a query that an idle machine
# compiles.
MAX_COMPILATION_CPU_SECONDS: Final = 2.0
# The limit on CPU seconds for saved queries, which operators write. MAX_COMPILATION_NODES also applies to saved
# queries, and is reached before this limit unless the machine is very slow.
MAX_SAVED_QUERY_CPU_SECONDS: Final = 10.0

# The number of nodes after which the CPU time is checked again.
_NODES_PER_TIME_CHECK: Final = 256

Clock = Callable[[], float]
Node = TypeVar("Node", bound=exp.Expr)


class _GarbageCollectionTimer(threading.local):
    """Counter of the CPU seconds that each thread spends in garbage collections.

    A collection frees the garbage of all threads, so its time is not charged to the compilation that triggered it.
    """

    total_cpu_seconds = 0.0
    _started_at = 0.0

    def record_phase(self, phase: str, _: object) -> None:
        if phase == "start":
            self._started_at = time.thread_time()
        else:
            self.total_cpu_seconds += time.thread_time() - self._started_at


_garbage_collection_timer = _GarbageCollectionTimer()
gc.callbacks.append(_garbage_collection_timer.record_phase)


def thread_cpu_seconds() -> float:
    """Return the CPU time of this thread without its garbage collections."""
    return time.thread_time() - _garbage_collection_timer.total_cpu_seconds


class CompilationPreempted(Exception):
    """Signal that the compilation of a valid query was stopped because other queries wait for its thread."""


class CompilationBudget:
    """Counters and limits of one compilation: nodes, characters and CPU seconds."""

    def __init__(
        self,
        nodes: int = MAX_COMPILATION_NODES,
        characters: int = MAX_PRINTED_CHARACTERS,
        seconds: float | None = None,
        clock: Clock = thread_cpu_seconds,
    ) -> None:
        self.counted_nodes = 0
        self.printed_characters = 0
        self._max_nodes = nodes
        self._max_printed_characters = characters
        self._cpu_limit_seconds = _max_cpu_seconds.get() if seconds is None else seconds
        self._clock = clock
        self._cpu_deadline_seconds = clock() + self._cpu_limit_seconds
        self._next_time_check_nodes = _NODES_PER_TIME_CHECK

    def charge_nodes(self, nodes: int) -> None:
        """Count visited or created nodes; raise PlanTooLarge or CompilationTimeout once a limit is exceeded."""
        self.counted_nodes += nodes
        if self.counted_nodes >= self._next_time_check_nodes:
            self._next_time_check_nodes = self.counted_nodes + _NODES_PER_TIME_CHECK
            if self.counted_nodes > self._max_nodes:
                raise PlanTooLarge(
                    f"Spelled out, the query has more than {self._max_nodes:,} parts.",
                    hint="Repeat less: select fewer columns, and use a column instead of the expression behind it.",
                )
            self.check_cpu_time()

    def charge_characters(self, characters: int) -> None:
        self.printed_characters += characters
        if self.printed_characters > self._max_printed_characters:
            raise PlanTooLarge(
                f"Spelled out, the query needs more than {self._max_printed_characters:,} characters.",
                hint="Nest fewer functions in each other: split them into sub-queries in WITH.",
            )

    def check_cpu_time(self) -> None:
        """Raise CompilationTimeout beyond the CPU time limit, or CompilationPreempted if the compilation must stop."""
        must_stop = _must_preempt_compilation.get()
        if must_stop is not None and must_stop():
            raise CompilationPreempted
        if self._clock() > self._cpu_deadline_seconds:
            raise CompilationTimeout(
                f"The query takes more than {self._cpu_limit_seconds:g} s to compile.",
                hint="Send a shorter query, or split it into several.",
            )


_current_budget: ContextVar[CompilationBudget | None] = ContextVar("budget", default=None)
_max_cpu_seconds: ContextVar[float] = ContextVar("seconds", default=MAX_COMPILATION_CPU_SECONDS)
_must_preempt_compilation: ContextVar[Callable[[], bool] | None] = ContextVar("must_stop", default=None)


@contextmanager
def allow_saved_query_cpu_time() -> Iterator[None]:
    """Set the CPU time limit of compilations in the `with` block to MAX_SAVED_QUERY_CPU_SECONDS."""
    token = _max_cpu_seconds.set(MAX_SAVED_QUERY_CPU_SECONDS)
    try:
        yield
    finally:
        _max_cpu_seconds.reset(token)


@contextmanager
def allow_compilation_preemption(must_stop: Callable[[], bool]) -> Iterator[None]:
    """Let compilations in the `with` block be stopped: raise CompilationPreempted as soon as `must_stop()` is True."""
    token = _must_preempt_compilation.set(must_stop)
    try:
        yield
    finally:
        _must_preempt_compilation.reset(token)


@contextmanager
def budget_scope(budget: CompilationBudget | None = None) -> Iterator[CompilationBudget]:
    """Set the budget of the `with` block: `budget` if given, else that of the enclosing block, else a new budget."""
    active = budget or _current_budget.get() or CompilationBudget()
    token = _current_budget.set(active)
    try:
        yield active
    finally:
        _current_budget.reset(token)


@contextmanager
def compilation_scope() -> Iterator[None]:
    """Run the `with` block with a budget, and turn the compiler's own exceptions into faults.

    A RecursionError becomes QueryRefused; other unexpected exceptions become CompilerFailed.
    """
    try:
        with budget_scope():
            yield
    except RecursionError as error:
        raise QueryRefused("The query is nested too deeply.", hint="Split it into sub-queries in WITH.") from error
    except (SqlglotError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        # The code that called the compiler logs the cause for the operator, and sends the client an incident id.
        raise CompilerFailed(
            "The compiler broke on this query.", hint="Write it in another way, and report it."
        ) from error


def charge_nodes(nodes: int = 1) -> None:
    budget = _current_budget.get()
    if budget is not None:
        budget.charge_nodes(nodes)


def charge_characters(characters: int) -> None:
    budget = _current_budget.get()
    if budget is not None:
        budget.charge_characters(characters)


def check_cpu_time() -> None:
    budget = _current_budget.get()
    if budget is not None:
        budget.check_cpu_time()


def copy_tree(tree: Node) -> Node:
    """Copy a tree and count its nodes.

    The copy is made before the limit is checked. This is safe: the nodes of the original tree are already counted, so
    the copy cannot be larger than the count so far.
    """
    copy = tree.copy()
    charge_nodes(sum(1 for _ in copy.walk()))
    return copy
