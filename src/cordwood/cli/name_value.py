"""Arguments in the form NAME=VALUE: parameters of an endpoint, and pins of a key."""

import argparse


def name_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value
