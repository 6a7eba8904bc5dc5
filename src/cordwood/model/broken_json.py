"""Readable messages for JSON that cannot be decoded."""


def why_no_json(problem: Exception, text: bytes) -> str:
    """Return the problem and its byte position, from the exception of a decoder."""
    if isinstance(problem, RecursionError):
        return "it is nested too deeply"
    if isinstance(problem, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {_first_no_letter(text)})"
    if "truncated" not in str(problem):
        return str(problem)
    return f"it ends before it is whole (byte {len(text)})" if text.strip() else "it is empty"


def _first_no_letter(text: bytes) -> int:
    try:
        return len(text.decode())
    except UnicodeDecodeError as problem:
        return problem.start
