"""Signed keys, if the settings configure them. The JWT library is an optional dependency, imported on demand."""

import importlib
from pathlib import Path
from typing import cast

from cordwood.access import SignedKeys
from cordwood.errors import BadSetting
from cordwood.settings.settings import Keys


def signed_keys(settings: Keys) -> SignedKeys | None:
    """Return the verifier of signed keys; None if neither a secret nor a JWKS file is configured."""
    if not (settings.jwt_secret or settings.jwt_jwks_file):
        return None
    try:
        room = importlib.import_module("cordwood.catalog.signed")
    except ModuleNotFoundError as problem:
        raise BadSetting(
            f"Signed keys need the package {problem.name}, which is not installed.",
            hint="Install the extra: pip install 'cordwood[jwt]'",
        ) from problem
    jwks_file = Path(settings.jwt_jwks_file) if settings.jwt_jwks_file else None
    made = room.JWTKeys(secret=settings.jwt_secret, jwks_file=jwks_file, audience=settings.jwt_audience)
    return cast(SignedKeys, made)
