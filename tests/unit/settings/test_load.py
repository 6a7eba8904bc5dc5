"""Loading of settings: precedence of file, environment and flags, errors, and environment variables of Logflare."""

from pathlib import Path

import pytest

from cordwood.errors import BadSetting
from cordwood.settings.load import client_default_url_and_key, load_settings
from cordwood.settings.settings import default_memory_ceiling_bytes, read_allowed_memory_bytes


@pytest.fixture(autouse=True)
def _use_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_config(text: str, name: str = "cordwood.toml") -> Path:
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_defaults_apply_without_any_source() -> None:
    loaded = load_settings(environment={})
    assert loaded.settings.web.port == 4000
    assert loaded.settings.limits.query_time == 30.0
    assert loaded.sources_by_setting == {}


def test_the_default_memory_limit_is_a_quarter_of_the_allowed_memory() -> None:
    assert read_allowed_memory_bytes() is not None
    assert (
        load_settings(environment={}).settings.limits.memory
        == default_memory_ceiling_bytes(read_allowed_memory_bytes())
        >= 256 * 10**6
    )
    assert load_settings(environment={"CORDWOOD_LIMITS_MEMORY": "300MB"}).settings.limits.memory == 300_000_000


def test_the_default_memory_limit_is_at_least_256_mb() -> None:
    assert default_memory_ceiling_bytes(10**9) == 256 * 10**6
    assert default_memory_ceiling_bytes(4 * 10**9) == 10**9
    assert default_memory_ceiling_bytes(None) == 256 * 10**6


def test_flags_override_the_environment_which_overrides_the_file() -> None:
    write_config("[web]\nport = 1\nhost = 'a'\ndrain_time = '1s'\n[limits]\nmemory = '100MB'")
    loaded = load_settings({"web.port": 3}, environment={"CORDWOOD_WEB_PORT": "2", "CORDWOOD_WEB_HOST": "b"})
    web = loaded.settings.web
    assert (web.port, web.host, web.drain_time) == (3, "b", 1.0)
    assert loaded.settings.limits.memory == 100_000_000
    assert loaded.sources_by_setting == {
        "web.port": "a flag",
        "web.host": "environment CORDWOOD_WEB_HOST",
        "web.drain_time": "cordwood.toml",
        "limits.memory": "cordwood.toml",
    }


def test_the_file_may_begin_with_a_byte_order_mark() -> None:
    file = write_config("\ufeffengine = 'chdb:///x'", "my.toml")
    assert load_settings(config=file, environment={}).settings.engine == "chdb:///x"


def test_the_file_may_be_named_by_flag_or_environment() -> None:
    file = write_config("engine = 'chdb:///x'", "elsewhere/my.toml")
    assert load_settings(config=file, environment={}).settings.engine == "chdb:///x"
    assert load_settings(environment={"CORDWOOD_CONFIG": str(file)}).settings.engine == "chdb:///x"


def test_a_named_file_that_is_missing_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"gone\.toml does not exist"):
        load_settings(config=Path("gone.toml"), environment={})


def test_a_default_config_file_that_cannot_be_read_is_refused() -> None:
    Path("cordwood.toml").mkdir()
    with pytest.raises(BadSetting, match=r"cordwood\.toml: .*directory"):
        load_settings(environment={})


def test_paths_in_a_file_are_relative_to_its_folder() -> None:
    file = write_config("[serve]\nendpoints = 'queries'\ndata_dir = '/abs'", "etc/cordwood.toml")
    serve = load_settings(config=file, environment={}).settings.serve
    assert serve.endpoints == "etc/queries"
    assert serve.data_dir == "/abs"


def test_the_setting_without_a_section_has_a_variable() -> None:
    assert load_settings(environment={"CORDWOOD_ENGINE": "chdb:///x"}).settings.engine == "chdb:///x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[web]\nprot = 1", r"web\.prot in cordwood\.toml is not a setting"),
        ("[wbe]\nport = 1", r"\[wbe\] in cordwood\.toml is not a setting"),
        ("engin = 'x'", "engin in"),
        ("[web]\nport = 70000", r"web\.port: 70000 cannot be used: it must be at most 65535 \(from cordwood\.toml\)"),
        ("[web]\nport = 'high'", r"web\.port: 'high' cannot be used: it must be a whole number \(from"),
        ("[web]\nport = true", r"web\.port"),
        ("[limits]\nmemory = '1KB'", r"limits\.memory: '1KB' cannot be used: it must be at least 64MiB"),
        ("[limits]\nquery_time = 30", "add a unit"),
        ("[limits]\nquery_time = '0s'", r"limits\.query_time"),
        ("[compat]\nerrors = 'old'", r"compat\.errors: 'old' cannot be used: it must be one of plain, logflare \(from"),
        ("web = 4000", r"web in cordwood\.toml is a section, not a setting"),
        ("[engine]\nname = 'x'", r"engine: .* cannot be used: expected a single value"),
        ("[web\nport = 1", "line 1"),
        ("[web]\nhost = ['a']", "single value"),
    ],
)
def test_invalid_settings_are_refused_with_their_position(text: str, message: str) -> None:
    write_config(text)
    with pytest.raises(BadSetting, match=message):
        load_settings(environment={})


def test_an_unknown_name_has_a_suggestion() -> None:
    with pytest.raises(BadSetting, match="CORDWOOD_LIMITS_QUERYTIME") as caught:
        load_settings(environment={"CORDWOOD_LIMITS_QUERYTIME": "5s"})
    assert caught.value.hint == "Did you mean CORDWOOD_LIMITS_QUERY_TIME?"


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load_settings(environment={"CORDWOOD_WEB_PORT": ""}).settings.web.port == 4000


def test_equal_private_and_public_keys_cause_a_notice() -> None:
    variables = {"LOGFLARE_PRIVATE_ACCESS_TOKEN": "hush", "LOGFLARE_PUBLIC_ACCESS_TOKEN": "hush"}
    (notice,) = load_settings(environment=variables).notices
    assert "are the same key" in notice
    assert "hush" not in notice
    assert load_settings(environment={**variables, "LOGFLARE_PUBLIC_ACCESS_TOKEN": "other"}).notices == ()


def test_the_error_of_an_invalid_secret_does_not_print_it() -> None:
    write_config("[keys]\nprivate = ['hush']")
    with pytest.raises(BadSetting) as caught:
        load_settings(environment={})
    assert "hush" not in caught.value.message


def test_service_variables_of_kubernetes_are_ignored() -> None:
    environment = {
        "CORDWOOD_PORT": "tcp://10.0.0.1:80",
        "CORDWOOD_SERVICE_HOST": "10.0.0.1",
        "CORDWOOD_PORT_80_TCP": "x",
    }
    assert load_settings(environment=environment).settings.web.port == 4000


def test_url_and_key_of_client_commands_are_not_settings() -> None:
    environment = {"CORDWOOD_URL": "http://a", "CORDWOOD_KEY": "k"}
    assert load_settings(environment=environment).sources_by_setting == {}
    assert client_default_url_and_key(environment) == ("http://a", "k")
    assert client_default_url_and_key({}) == (None, None)
    assert client_default_url_and_key({"CORDWOOD_URL": "http://a ", "CORDWOOD_KEY": "k\r\n"}) == ("http://a", "k")
    assert client_default_url_and_key({"CORDWOOD_URL": " ", "CORDWOOD_KEY": "\n"}) == (None, None)


def test_variables_of_logflare_are_read() -> None:
    loaded = load_settings(
        environment={
            "LOGFLARE_PRIVATE_ACCESS_TOKEN": "priv",
            "LOGFLARE_PUBLIC_ACCESS_TOKEN": "pub",
            "LOGFLARE_API_KEY": "old-pub",
            "PHX_HTTP_PORT": "4001",
        }
    )
    assert (loaded.settings.keys.private, loaded.settings.keys.public) == ("priv", "pub")
    assert loaded.settings.web.port == 4001
    assert loaded.sources_by_setting["keys.public"] == "environment LOGFLARE_PUBLIC_ACCESS_TOKEN"
    assert loaded.notices == ()


def test_the_older_variable_of_the_public_key_is_read() -> None:
    assert load_settings(environment={"LOGFLARE_API_KEY": "old"}).settings.keys.public == "old"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("0.0.0.0", "0.0.0.0"),
        ("::", "::"),
        ("[::1]", "::1"),
        ("0,0,0,0", "0.0.0.0"),
        ("{127, 0, 0, 1}", "127.0.0.1"),
        ("0,0,0,0,0,0,0,0", "0:0:0:0:0:0:0:0"),
    ],
)
def test_all_notations_of_logflare_s_address_are_read(text: str, host: str) -> None:
    assert load_settings(environment={"PHX_HTTP_IP": text}).settings.web.host == host


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("error", "error"),
        ("WARN", "warning"),
        ("critical", "error"),
        ("notice", "info"),
        ("all", "debug"),
        ("loud", "info"),
    ],
)
def test_log_levels_of_logflare_map_to_the_nearest_level(text: str, level: str) -> None:
    assert load_settings(environment={"LOGFLARE_LOG_LEVEL": text}).settings.web.log_level == level


def test_own_variables_override_those_of_logflare() -> None:
    environment = {"PHX_HTTP_PORT": "1", "CORDWOOD_WEB_PORT": "2"}
    assert load_settings(environment=environment).settings.web.port == 2


def test_other_variables_of_logflare_are_ignored_with_one_notice() -> None:
    environment = {"LOGFLARE_SINGLE_TENANT": "true", "DB_HOSTNAME": "db", "POSTGRES_BACKEND_URL": "x", "PHX_URL": "y"}
    environment["RELEASE_COOKIE"] = "z"
    (notice,) = load_settings(environment=environment).notices
    assert all(name in notice for name in environment)


def test_common_variables_cause_no_notice() -> None:
    assert load_settings(environment={"DB_HOST": "x"}).notices == ()
