"""The length of the engines' error messages, which is limited before a message is reworded."""

from typing import Final

# The maximum number of characters of a message that are compared with the patterns of its rewordings. A message quotes
# values and parts of the query, so its author determines how long it is, and the time for some of the patterns grows
# with the square of the length.
_MAX_REWORDED_CHARACTERS: Final = 1_000


def shorten_engine_message(message: str) -> str:
    """Replace the middle of a long message by an ellipsis.

    The beginning says what is wrong, and the end names the type or the function.
    """
    if len(message) <= _MAX_REWORDED_CHARACTERS:
        return message
    half = _MAX_REWORDED_CHARACTERS // 2
    return f"{message[:half]}…{message[-half:]}"
