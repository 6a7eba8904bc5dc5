"""Defaults < file < environment < flags; whatever is not known is refused with the nearest spelling."""

from pathlib import Path

import pytest

from cordwood.errors import BadSetting
from cordwood.settings.load import client_defaults, load
from cordwood.settings.machine import allowed_memory, default_ceiling


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(text: str, name: str = "cordwood.toml") -> Path:
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_without_anything_given_the_defaults_hold() -> None:
    loaded = load(environment={})
    assert loaded.settings.web.port == 4000
    assert loaded.settings.limits.query_time == 30.0
    assert loaded.origins == {}


def test_the_ceiling_is_a_quarter_of_the_machine_unless_it_is_set() -> None:
    assert allowed_memory() is not None
    assert load(environment={}).settings.limits.memory == default_ceiling(allowed_memory()) >= 256 * 10**6
    assert load(environment={"CORDWOOD_LIMITS_MEMORY": "300MB"}).settings.limits.memory == 300_000_000


def test_a_quarter_of_little_is_still_enough_to_work_with() -> None:
    assert default_ceiling(10**9) == 256 * 10**6
    assert default_ceiling(4 * 10**9) == 10**9
    assert default_ceiling(None) == 256 * 10**6


def test_each_source_overrules_the_one_before() -> None:
    config("[web]\nport = 1\nhost = 'a'\ndrain_time = '1s'\n[limits]\nmemory = '100MB'")
    loaded = load({"web.port": 3}, environment={"CORDWOOD_WEB_PORT": "2", "CORDWOOD_WEB_HOST": "b"})
    web = loaded.settings.web
    assert (web.port, web.host, web.drain_time) == (3, "b", 1.0)
    assert loaded.settings.limits.memory == 100_000_000
    assert loaded.origins == {
        "web.port": "a flag",
        "web.host": "environment CORDWOOD_WEB_HOST",
        "web.drain_time": "cordwood.toml",
        "limits.memory": "cordwood.toml",
    }


def test_the_file_may_be_named_by_flag_or_environment() -> None:
    file = config("engine = 'chdb:///x'", "elsewhere/my.toml")
    assert load(config=file, environment={}).settings.engine == "chdb:///x"
    assert load(environment={"CORDWOOD_CONFIG": str(file)}).settings.engine == "chdb:///x"


def test_a_named_file_that_is_missing_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"gone\.toml does not exist"):
        load(config=Path("gone.toml"), environment={})


def test_whatever_has_the_usual_name_is_read_or_refused() -> None:
    Path("cordwood.toml").mkdir()
    with pytest.raises(BadSetting, match=r"cordwood\.toml: .*directory"):
        load(environment={})


def test_paths_in_a_file_are_told_from_its_folder() -> None:
    file = config("[serve]\nendpoints = 'queries'\ndata_dir = '/abs'", "etc/cordwood.toml")
    serve = load(config=file, environment={}).settings.serve
    assert serve.endpoints == "etc/queries"
    assert serve.data_dir == "/abs"


def test_the_setting_without_a_section_has_a_variable_too() -> None:
    assert load(environment={"CORDWOOD_ENGINE": "chdb:///x"}).settings.engine == "chdb:///x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[web]\nprot = 1", r"web\.prot in cordwood\.toml is no setting"),
        ("[wbe]\nport = 1", r"\[wbe\] in cordwood\.toml is no setting"),
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
def test_what_cannot_be_meant_is_refused_with_its_place(text: str, said: str) -> None:
    config(text)
    with pytest.raises(BadSetting, match=said):
        load(environment={})


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(BadSetting, match="CORDWOOD_LIMITS_QUERYTIME") as caught:
        load(environment={"CORDWOOD_LIMITS_QUERYTIME": "5s"})
    assert caught.value.hint == "Did you mean CORDWOOD_LIMITS_QUERY_TIME?"


def test_a_variable_that_is_set_to_nothing_is_not_set() -> None:
    assert load(environment={"CORDWOOD_WEB_PORT": ""}).settings.web.port == 4000


def test_one_key_for_both_uses_is_told() -> None:
    variables = {"LOGFLARE_PRIVATE_ACCESS_TOKEN": "hush", "LOGFLARE_PUBLIC_ACCESS_TOKEN": "hush"}
    (notice,) = load(environment=variables).notices
    assert "are the same key" in notice
    assert "hush" not in notice
    assert load(environment={**variables, "LOGFLARE_PUBLIC_ACCESS_TOKEN": "other"}).notices == ()


def test_a_secret_that_cannot_be_used_is_not_repeated() -> None:
    config("[keys]\nprivate = ['hush']")
    with pytest.raises(BadSetting) as caught:
        load(environment={})
    assert "hush" not in caught.value.message


def test_variables_that_kubernetes_adds_for_a_service_of_our_name_are_none_of_ours() -> None:
    environment = {
        "CORDWOOD_PORT": "tcp://10.0.0.1:80",
        "CORDWOOD_SERVICE_HOST": "10.0.0.1",
        "CORDWOOD_PORT_80_TCP": "x",
    }
    assert load(environment=environment).settings.web.port == 4000


def test_what_client_commands_talk_to_is_no_setting() -> None:
    environment = {"CORDWOOD_URL": "http://a", "CORDWOOD_KEY": "k"}
    assert load(environment=environment).origins == {}
    assert client_defaults(environment) == ("http://a", "k")
    assert client_defaults({}) == (None, None)


def test_the_variables_of_logflare_keep_their_meaning() -> None:
    loaded = load(
        environment={
            "LOGFLARE_PRIVATE_ACCESS_TOKEN": "priv",
            "LOGFLARE_PUBLIC_ACCESS_TOKEN": "pub",
            "LOGFLARE_API_KEY": "old-pub",
            "PHX_HTTP_PORT": "4001",
        }
    )
    assert (loaded.settings.keys.private, loaded.settings.keys.public) == ("priv", "pub")
    assert loaded.settings.web.port == 4001
    assert loaded.origins["keys.public"] == "environment LOGFLARE_PUBLIC_ACCESS_TOKEN"
    assert loaded.notices == ()


def test_the_older_variable_of_the_public_key_counts_where_it_stands_alone() -> None:
    assert load(environment={"LOGFLARE_API_KEY": "old"}).settings.keys.public == "old"


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
def test_the_address_of_logflare_is_taken_in_all_its_spellings(text: str, host: str) -> None:
    assert load(environment={"PHX_HTTP_IP": text}).settings.web.host == host


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
def test_the_levels_of_logflare_are_the_nearest_of_ours_and_no_reason_not_to_start(text: str, level: str) -> None:
    assert load(environment={"LOGFLARE_LOG_LEVEL": text}).settings.web.log_level == level


def test_our_own_variables_overrule_those_of_logflare() -> None:
    environment = {"PHX_HTTP_PORT": "1", "CORDWOOD_WEB_PORT": "2"}
    assert load(environment=environment).settings.web.port == 2


def test_the_rest_of_logflares_variables_is_ignored_with_one_notice() -> None:
    environment = {"LOGFLARE_SINGLE_TENANT": "true", "DB_HOSTNAME": "db", "POSTGRES_BACKEND_URL": "x", "PHX_URL": "y"}
    environment["RELEASE_COOKIE"] = "z"
    (notice,) = load(environment=environment).notices
    assert all(name in notice for name in environment)


def test_variables_that_others_use_too_are_no_sign_of_a_logflare() -> None:
    assert load(environment={"DB_HOST": "x"}).notices == ()
