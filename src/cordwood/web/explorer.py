"""Routes for the static files of the explorer (a single-page application), and of the API page at /docs."""

import re
from functools import cache
from hashlib import blake2b
from html import escape
from importlib import resources
from importlib.resources.abc import Traversable

import msgspec

from cordwood.errors import PathNotFound
from cordwood.web.asgi import Header, Request, Response, choose_content_coding, compress_body

# This policy makes browsers refuse external resources, inline scripts, and the display of a page in a frame.
_CONTENT_SECURITY_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
PAGE_SECURITY_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", _CONTENT_SECURITY_POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"vary", b"Accept, Accept-Encoding"),
)
_MEDIA_TYPES_BY_SUFFIX = {
    "html": b"text/html; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "svg": b"image/svg+xml",
}
_PAGE, _FIRST_SCRIPT = "index.html", "main.js"
_SIGN_IN_PAGE = "sign-in.html"
_IMMUTABLE_CACHE_CONTROL = b"public, max-age=31536000, immutable"
# Browsers must ask for a page again each time, because it contains the URLs of the files of the current version.
_REVALIDATED_CACHE_CONTROL = b"no-cache"
_STATIC_IMPORT_PATTERN = re.compile(rb'from "\./([\w-]+\.js)"')
# Matches the comments in a script that fill whole lines. They are removed, because they would be a seventh of the
# compressed scripts.
_WHOLE_LINE_COMMENT_PATTERN = re.compile(rb"^[ ]*(?://.*|/\*\*(?:(?!\*/)[\s\S])*\*/)$", re.MULTILINE)


class _StaticFile(msgspec.Struct, frozen=True):
    body: bytes
    media_type: bytes
    etag: str
    bodies_by_coding: dict[str, bytes] = msgspec.field(default_factory=dict)

    def compressed_body(self, coding: str) -> bytes:
        if coding not in self.bodies_by_coding:
            self.bodies_by_coding[coding] = compress_body(self.body, coding)
        return self.bodies_by_coding[coding]


class _StaticFiles(msgspec.Struct, frozen=True):
    """The static files of all pages by name. `version` is a part of the URL of each file that is not a page itself."""

    version: str
    file_by_name: dict[str, _StaticFile]


def show_explorer(request: Request) -> Response:
    """Return the explorer's page to clients that accept HTML; raise PathNotFound for other clients."""
    accepted = request.joined_header(b"accept") or "*/*"
    if not any(one in accepted for one in ("text/html", "text/*", "*/*")):
        raise PathNotFound("There is nothing at / but an HTML page.")
    return _file_response(request, _load_static_files().file_by_name[_PAGE], _REVALIDATED_CACHE_CONTROL)


def show_file(request: Request, address: str) -> Response:
    """Return a static file of the current version.

    For another version, raise PathNotFound, so that browsers load the page again.
    """
    version, _, name = address.partition("/")
    files = _load_static_files()
    if version != files.version or name not in files.file_by_name:
        raise PathNotFound(f"There is nothing at /explorer/{address}.", hint="Load the page again.")
    return _file_response(request, files.file_by_name[name], _IMMUTABLE_CACHE_CONTROL)


def show_sign_in(request: Request) -> Response:
    """Return the page that reads the key from a demo's link and stores it in the browser.

    In the link, the key follows the #, so that browsers do not send it to the server.
    """
    return _file_response(request, _load_static_files().file_by_name[_SIGN_IN_PAGE], _REVALIDATED_CACHE_CONTROL)


def static_file_url(name: str) -> str:
    """Return the relative URL of a static file. The URL contains the current version."""
    return f"explorer/{_load_static_files().version}/{name}"


def _file_response(request: Request, file: _StaticFile, cache_control: bytes) -> Response:
    coding = choose_content_coding(request.joined_header(b"accept-encoding"))
    tag = f'"{file.etag}-{coding}"' if coding else f'"{file.etag}"'
    headers = [*PAGE_SECURITY_HEADERS, (b"etag", tag.encode()), (b"cache-control", cache_control)]
    if tag in request.joined_header(b"if-none-match"):
        return Response(304, headers)
    headers.append((b"content-type", file.media_type))
    if coding is None:
        return Response(200, headers, file.body)
    return Response(200, [*headers, (b"content-encoding", coding.encode())], file.compressed_body(coding))


@cache
def _load_static_files() -> _StaticFiles:
    folders = resources.files("cordwood") / "explorer", resources.files("cordwood.web.describe") / "docs"
    bodies = {one.name: one.read_bytes() for folder in folders for one in _files_in(folder)}
    bodies = {name: remove_comments(body) if _is_script(name) else body for name, body in bodies.items()}
    version = _digest(b"".join(name.encode() + body for name, body in sorted(bodies.items())))
    preloaded = sorted(_scripts_to_preload(bodies))
    for page in (_PAGE, _SIGN_IN_PAGE):
        bodies[page] = _insert_file_urls(bodies[page], version, preloaded)
    return _StaticFiles(
        version, {name: _StaticFile(body, _media_type(name), _digest(body)) for name, body in bodies.items()}
    )


def remove_comments(script: bytes) -> bytes:
    """Remove the comments of a script that fill whole lines. The other lines keep their line numbers."""
    return _WHOLE_LINE_COMMENT_PATTERN.sub(lambda comment: b"\n" * comment[0].count(b"\n"), script)


def _files_in(folder: Traversable) -> list[Traversable]:
    return [one for one in folder.iterdir() if one.is_file() and one.name.rpartition(".")[2] in _MEDIA_TYPES_BY_SUFFIX]


def _insert_file_urls(page: bytes, version: str, names: list[str]) -> bytes:
    """Insert URLs of static files into a page. They are relative, so that the page works below any path prefix."""
    ahead = [f'<link rel="modulepreload" href="explorer/{version}/{escape(name)}">' for name in names]
    return page.replace(b"{version}", version.encode()).replace(b"<!-- modules -->", "\n".join(ahead).encode())


def _scripts_to_preload(bodies: dict[str, bytes]) -> set[str]:
    """Return the names of all scripts that the page's first script imports, directly or indirectly."""
    found: set[str] = set()
    pending = [_FIRST_SCRIPT]
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += [one.decode() for one in _STATIC_IMPORT_PATTERN.findall(bodies[name])]
    return found


def _is_script(name: str) -> bool:
    return name.endswith(".js")


def _media_type(name: str) -> bytes:
    return _MEDIA_TYPES_BY_SUFFIX[name.rpartition(".")[2]]


def _digest(body: bytes) -> str:
    return blake2b(body, digest_size=8).hexdigest()
