"""What one compilation may make and how long it may take, counted by every pass while it works."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from sqlglot import exp
from sqlglot.errors import SqlglotError

from cordwood.errors import CompilerBroke, CompileTooLong, PlanTooLarge, QueryRefused

# Nodes that all passes together may visit or make. The largest client query that is known needs 5,600.
MOST_NODES: Final = 300_000
# Characters that printing may write: a text is counted with each of the parts it is put together of. Clients need 95,000.
MOST_CHARACTERS: Final = 4_000_000
# Seconds of the processor, not of the clock: a busy machine refuses nothing that an idle one would compile.
MOST_SECONDS: Final = 2.0

# Nodes between two looks at the clock.
_LOOK_EVERY: Final = 256

Clock = Callable[[], float]
Node = TypeVar("Node", bound=exp.Expr)


class Budget:
    """One compilation's nodes, characters and seconds."""

    def __init__(
        self,
        nodes: int = MOST_NODES,
        characters: int = MOST_CHARACTERS,
        seconds: float = MOST_SECONDS,
        clock: Clock = time.thread_time,
    ) -> None:
        self.nodes = 0
        self.characters = 0
        self._most_nodes = nodes
        self._most_characters = characters
        self._seconds = seconds
        self._clock = clock
        self._ends = clock() + seconds
        self._next_look = _LOOK_EVERY

    def spend(self, nodes: int) -> None:
        """Count nodes; PlanTooLarge or CompileTooLong once there are too many, or it took too long."""
        self.nodes += nodes
        if self.nodes >= self._next_look:
            self._next_look = self.nodes + _LOOK_EVERY
            if self.nodes > self._most_nodes:
                raise PlanTooLarge(
                    f"Spelled out, the query has more than {self._most_nodes:,} parts.",
                    hint="Repeat less: select fewer columns, and use a column instead of the expression behind it.",
                )
            self.look()

    def write(self, characters: int) -> None:
        self.characters += characters
        if self.characters > self._most_characters:
            raise PlanTooLarge(
                f"Spelled out, the query needs more than {self._most_characters:,} characters.",
                hint="Nest fewer functions in each other: split them into sub-queries in WITH.",
            )

    def look(self) -> None:
        """CompileTooLong once the time is over."""
        if self._clock() > self._ends:
            raise CompileTooLong(
                f"The query takes more than {self._seconds:g} s to compile.",
                hint="Send a shorter query, or split it into several.",
            )


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def budgeted(budget: Budget | None = None) -> Iterator[Budget]:
    """Count what is compiled inside; a budget that is in force already stays unless another is given."""
    wanted = budget or _current.get() or Budget()
    token = _current.set(wanted)
    try:
        yield wanted
    finally:
        _current.reset(token)


@contextmanager
def compiling() -> Iterator[None]:
    """Compile inside: within a budget, and whatever breaks on a form that no list foresees is a bug."""
    try:
        with budgeted():
            yield
    except RecursionError as error:
        raise QueryRefused("The query is nested too deeply.", hint="Split it into sub-queries in WITH.") from error
    except (SqlglotError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        # Whoever asked the compiler tells the operator, and gives the caller an incident id.
        raise CompilerBroke(
            "The compiler broke on this query.", hint="Write it in another way, and report it."
        ) from error


def spend(nodes: int = 1) -> None:
    budget = _current.get()
    if budget is not None:
        budget.spend(nodes)


def write(characters: int) -> None:
    budget = _current.get()
    if budget is not None:
        budget.write(characters)


def look() -> None:
    budget = _current.get()
    if budget is not None:
        budget.look()


def copied(tree: Node) -> Node:
    """A copy whose nodes count. It is at most as large as what was counted before, so it may be made first."""
    made = tree.copy()
    spend(sum(1 for _ in made.walk()))
    return made
