"""The listeners beside HTTP, made from the settings. Imported only if a setting has an address for one."""

from cordwood.errors import BadSetting
from cordwood.ingest.accept import Form
from cordwood.ingest.stream_mapping import read_mapping
from cordwood.listeners.address import read_all
from cordwood.listeners.event_store import Destination
from cordwood.listeners.fluent import FluentOptions, read_handshake_secrets
from cordwood.listeners.listeners import Listeners, ListenOptions, TlsFiles
from cordwood.settings.settings import Settings
from cordwood.web.receiving import BodyBounds

# A connection takes 64 KiB for data that it has read, and several times that for the decoded events.
_CONNECTION_BYTES = 2**20
_MAX_CONNECTIONS = 1000


def bind_listeners(settings: Settings) -> Listeners:
    """Bind all addresses; raise BadSetting if one cannot be bound, or the settings contradict each other."""
    listen = settings.listen
    mapping = read_mapping(settings.ingest.stream_map, settings.ingest.default_stream)
    syslog, fluent = read_all(listen)
    if syslog and not (listen.syslog_stream or mapping.default):
        raise BadSetting(
            "listen.syslog needs a stream: no sender of syslog can be told that its messages have none.",
            hint="Set listen.syslog_stream or ingest.default_stream.",
        )
    bounds = BodyBounds(settings.ingest.body_size, min(settings.ingest.inflated_size, settings.limits.ceiling // 2))
    return Listeners(
        ListenOptions(
            syslog=syslog,
            fluent=fluent,
            syslog_destination=Destination(Form.SYSLOG, listen.syslog_stream, listen.syslog_key, mapping),
            fluent_destination=Destination(Form.FLUENT, listen.fluent_stream, listen.fluent_key, mapping),
            fluent_options=FluentOptions(
                bounds,
                settings.ingest.event_size,
                read_handshake_secrets(listen.fluent_shared_key, listen.fluent_users),
            ),
            connections=listener_connections(settings),
            tls=TlsFiles(listen.tls_certificate, listen.tls_key, listen.tls_client_ca),
        )
    )


def listener_connections(settings: Settings) -> int:
    """Return the limit on the connections of all listeners."""
    return settings.listen.connections or max(16, min(_MAX_CONNECTIONS, settings.limits.ceiling // _CONNECTION_BYTES))
