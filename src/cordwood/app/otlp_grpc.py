"""The gRPC server for OTLP, made from the settings. Imported only if a setting has an address for it."""

from pathlib import Path

import msgspec

from cordwood.errors import BadSetting
from cordwood.listeners.address import read_otlp_grpc
from cordwood.settings.settings import Listen, Settings
from cordwood.web.asgi import Application
from cordwood.web.otlp_grpc import OtlpGrpcServer, Tls

# A connection may hold some hundred KiB that its calls have sent and that were not read yet.
_CONNECTION_BYTES = 2**20
_MAX_CONNECTIONS = 1000


async def started(settings: Settings, application: Application) -> OtlpGrpcServer:
    """Start the server, which listens at all addresses in the setting."""
    addresses = read_otlp_grpc(settings.listen)
    ceiling = settings.limits.ceiling
    connections = settings.listen.connections or max(16, min(_MAX_CONNECTIONS, ceiling // _CONNECTION_BYTES))
    server = OtlpGrpcServer(application, ceiling // 16, connections)
    tls = _tls(settings.listen) if any(address.scheme == "tls" for address in addresses) else None
    for address in addresses:
        host_and_port = str(address).removeprefix(f"{address.scheme}://")
        port = server.listen(host_and_port, tls if address.scheme == "tls" else None)
        server.names.append(f"OTLP over gRPC {msgspec.structs.replace(address, port=port)}")
    await server.start()
    return server


def _tls(listen: Listen) -> Tls:
    if not listen.tls_certificate:
        raise BadSetting("A tls:// address needs a certificate.", hint="Set listen.tls_certificate.")
    try:
        certificate = Path(listen.tls_certificate).read_bytes()
        key = Path(listen.tls_key).read_bytes() if listen.tls_key else certificate
        authorities = Path(listen.tls_client_ca).read_bytes() if listen.tls_client_ca else None
    except OSError as problem:
        raise BadSetting(f"{problem.filename} cannot be read: {problem.strerror}.") from problem
    return Tls(certificate, key, authorities)
