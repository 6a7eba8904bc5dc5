"""The editor of endpoints, streams and alerts, which are edited as text.

Docstrings of tests state the steps that a person takes, at most four.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import ALL_LOOKS, HeldRequest, OpenTab, Tab, demo_from_service, wait_until_true
from tests.browser.test_accessible import load_axe, serious_faults
from tests.demo import Demo
from tests.journey.conftest import Service, start_service

HOSTILE_MARKUP = "<img src=x onerror=document.title='taken'>"
QUERY = "select t.timestamp, t.event_message from `postgres.logs` as t where t.event_message = @wanted"
ENDPOINT_FILE = """/*
name = "of.a.file"
[alert]
every = "1h"
condition = "rows > 1000"
*/
select id from `postgres.logs`
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A running service with five events in postgres.logs, and an endpoint in a file of the operator."""
    folder = tmp_path_factory.mktemp("definitions")
    (folder / "files").mkdir()
    (folder / "files" / "of.a.file.sql").write_text(ENDPOINT_FILE)
    running = start_service(folder / "data", "--endpoints", str(folder / "files"))
    events = [{"event_message": "seen", "metadata": {"level": "info", "database": "orders"}} for _ in range(5)]
    assert running.send("postgres.logs", events).json()["accepted"] == 5
    yield running
    running.stop()


@pytest.fixture(scope="module")
def demo(service: Service) -> Demo:
    return demo_from_service(service)


def create_endpoint(service: Service, name: str, **fields: Any) -> str:
    """Create an endpoint that reads the events of postgres.logs, and return its name."""
    definition = {"name": name, "query": QUERY, "max_limit": 3, **fields}
    answer = service.client.post("/api/endpoints", json=definition)
    assert answer.status_code == 201, answer.text
    return name


def text_area(page: Page, noun: str = "endpoint") -> Locator:
    """Return the text area of the definition, once it is shown."""
    editor = page.get_by_role("combobox", name=f"Definition of the {noun}")
    expect(editor).to_have_value(re.compile("\\S"))
    return editor


def replace_text(page: Page, before: str, after: str, noun: str = "endpoint") -> None:
    text = text_area(page, noun).input_value()
    assert before in text
    text_area(page, noun).fill(text.replace(before, after, 1))


def click_button(page: Page, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def status_message(page: Page) -> Locator:
    return page.get_by_role("region", name="Definition")


def open_new_definition(tab: Tab, service: Service, name: str) -> Page:
    """Return the page with the definition of a new endpoint."""
    create_endpoint(service, name)
    page = tab.open(f"endpoints?endpoint={name}")
    click_button(page, "Edit")
    text_area(page)
    expect(status_message(page)).to_contain_text("Valid. It does what is served.")
    return page


def test_a_changed_row_limit_is_saved_and_applied(tab: Tab, service: Service) -> None:
    """Change the row limit in three steps: Edit, type, Save. The page then runs the endpoint again."""
    name = create_endpoint(service, "limited")
    page = tab.open(f"endpoints?endpoint={name}&p.wanted=seen&run=1")
    expect(page.locator(".receipt")).to_contain_text("3 rows")
    click_button(page, "Edit")
    replace_text(page, "max_rows = 3", "max_rows = 2")
    expect(status_message(page)).to_contain_text("Valid. Changed: max_rows 3 → 2.")
    click_button(page, "Save endpoint")
    expect(page.locator("#told")).to_contain_text("The endpoint limited is saved.")
    expect(page.locator(".receipt")).to_contain_text("2 rows")
    expect(status_message(page)).to_contain_text("Valid. It does what is served.")
    assert len(service.rows(name, wanted="seen")) == 2


def test_an_error_is_shown_at_its_place_while_it_is_typed(tab: Tab, service: Service) -> None:
    """Correct an error in two steps: type, and click the position that the message names."""
    tab.expect_refusal(422)
    page = open_new_definition(tab, service, "mistyped")
    replace_text(page, "`postgres.logs`", "`postgres.log`")
    message = page.locator(".definition .editor-error")
    expect(message).to_contain_text("Did you mean postgres.logs?")
    expect(page.locator(".definition .wrong")).to_have_text("`postgres.log`")
    message.get_by_role("button", name=re.compile(r"line \d+, column \d+")).click()
    wait_until_true(page, "document.getSelection().toString() === '`postgres.log`'")
    page.keyboard.type("`postgres.logs`")
    expect(message).to_be_empty()
    replace_text(page, "max_rows = 3", "max_rows = 0")
    expect(page.locator(".definition .wrong").first).to_be_visible()
    expect(message).to_contain_text("max_rows")
    # A text that the check refuses is not stored.
    click_button(page, "Save endpoint")
    expect(message).to_contain_text("max_rows")
    assert service.client.get("/api/endpoints/mistyped").json()["max_limit"] == 3


def test_only_the_check_of_the_newest_text_counts(tab: Tab, service: Service) -> None:
    page = open_new_definition(tab, service, "hasty")
    check = HeldRequest(page, re.compile(r"/hasty\?dry_run=true$"))
    replace_text(page, "max_rows = 3", "max_rows = 4")
    check.sent()
    with page.expect_event("requestfailed"):
        replace_text(page, "max_rows = 4", "max_rows = 5")
    expect(status_message(page)).to_contain_text("max_rows 3 → 5")


def put_text(page: Page, text: str) -> None:
    """Set the text at once, as pasting does, because the browser takes long to type thousands of lines."""
    text_area(page).evaluate(
        "(area, text) => { area.value = text; area.dispatchEvent(new Event('input', {bubbles: true})) }", text
    )


def test_a_long_word_and_a_long_text_do_not_stop_typing(tab: Tab, service: Service) -> None:
    """Set texts with a long word and with many lines.

    Regression: the time to colour a word, and to insert lines, grew with the square of their length.
    """
    tab.expect_refusal(422)
    page = open_new_definition(tab, service, "long")
    short_text = text_area(page).input_value()
    put_text(page, "/*\n" + "x" * 39_000 + "\n*/")
    expect(page.locator(".definition .editor-error")).not_to_be_empty()
    put_text(page, short_text + "-- a comment\n" * 8_000)
    click_button(page, "Save endpoint")
    expect(page.locator("#told")).to_contain_text("is saved")
    page.get_by_text("Versions", exact=True).click()
    click_button(page, "Show version 1")
    expect(text_area(page)).to_have_value(short_text)
    click_button(page, "Discard changes")
    wait_until_true(page, "document.querySelector('.definition .editor-text').value.length > 100_000")


def name_and_save(page: Page, noun: str, first_name: str, name: str) -> None:
    """Name a new endpoint or stream and save it. Its initial text is valid, and the name is selected."""
    page.get_by_role("link", name=f"New {noun}").click()
    expect(status_message(page)).to_contain_text(f"Valid: {first_name} would be new.")
    page.keyboard.type(name)
    click_button(page, f"Save {noun}")
    expect(page.get_by_role("heading", name=f"Edit {name}")).to_be_visible()


def test_a_new_endpoint_is_written_from_its_initial_text(tab: Tab, service: Service) -> None:
    """Create an endpoint in four steps: New endpoint, its name, Save, Run. The initial text is valid."""
    page = tab.open("endpoints")
    name_and_save(page, "endpoint", "my.endpoint", "made.here")
    click_button(page, "Run")
    expect(page.locator(".receipt")).to_contain_text("5 rows")
    assert len(service.rows("made.here")) == 5
    expect(page.get_by_role("link", name=re.compile("^made.here"))).to_have_attribute("aria-current", "true")


def test_a_shipped_endpoint_is_copied(tab: Tab, service: Service) -> None:
    """Copy a shipped endpoint in two steps: Copy as new, Save."""
    page = tab.open("endpoints?endpoint=usage.api-counts")
    expect(page.get_by_text("It ships with cordwood.")).to_be_visible()
    expect(page.get_by_role("button", name="Edit", exact=True)).to_have_count(0)
    click_button(page, "Copy as new")
    expect(status_message(page)).to_contain_text("Valid: usage.api-counts.copy would be new.")
    click_button(page, "Save endpoint")
    expect(page.get_by_role("heading", name="Edit usage.api-counts.copy")).to_be_visible()
    copied_endpoint = service.client.get("/api/endpoints/usage.api-counts.copy").json()
    assert (copied_endpoint["origin"], copied_endpoint["cache_duration_seconds"]) == ("managed", 900)


def test_an_alert_is_added_and_listed_on_the_alerts_page(tab: Tab, service: Service) -> None:
    """Add an alert in four steps: Edit, Add an alert, Save, Alerts. The added alert is valid for its endpoint."""
    tab.expect_refusal(422)
    parameters = [{"name": "since", "type": "timestamp", "required": True}]
    query = "select t.id from `postgres.logs` as t where t.timestamp > @since"
    name = create_endpoint(service, "watched", query=query, parameters=parameters)
    page = tab.open(f"endpoints?endpoint={name}")
    click_button(page, "Edit")
    text_area(page)
    click_button(page, "Add an alert")
    expect(status_message(page)).to_contain_text("Valid. Changed: alert.")
    # The new alert's condition is selected, so that typing replaces it.
    page.keyboard.type("rowz > 100")
    expect(page.locator(".definition .editor-error")).to_contain_text("rowz")
    expect(page.locator(".definition .wrong").first).to_be_visible()
    replace_text(page, "rowz", "rows")
    click_button(page, "Save endpoint")
    expect(page.locator("#told")).to_contain_text("is saved")
    page.get_by_role("link", name="Alerts").click()
    card = page.get_by_role("region", name="Alert watched")
    expect(card).to_contain_text("rows > 100")
    tab.save_screenshot("alerts")
    # The alert's link to its endpoint opens the editor, with the alert selected.
    card.get_by_role("link", name="Edit watched").click()
    text_area(page)
    expect(page.get_by_role("button", name="Go to the alert")).to_be_visible()
    selected = "document.getSelection().toString()"
    wait_until_true(page, f"{selected} === '[alert]'")


def test_an_alert_in_a_file_is_read_only_and_its_endpoint_is_copied(tab: Tab) -> None:
    """Copy the endpoint of an alert file in two steps: Copy as new, Save."""
    page = tab.open("alerts")
    card = page.get_by_role("region", name="Alert of.a.file")
    expect(card).to_contain_text("It is in a file of the operator.")
    card.get_by_role("link", name="Copy of.a.file as new").click()
    expect(status_message(page)).to_contain_text("Valid: of.a.file.copy would be new.")
    click_button(page, "Save endpoint")
    expect(page.get_by_role("heading", name="Edit of.a.file.copy")).to_be_visible()
    page.get_by_role("link", name="Alerts").click()
    expect(page.get_by_role("link", name="Edit of.a.file.copy")).to_be_visible()


def test_a_transform_is_added_to_a_stream(tab: Tab, service: Service) -> None:
    """Add a transform in three steps: Edit, Add a transform, Save."""
    page = tab.open("streams?stream=pgbouncer.logs.prod")
    click_button(page, "Edit")
    text_area(page, "stream")
    click_button(page, "Add a transform")
    expect(status_message(page)).to_contain_text("Valid. Changed: transform.")
    click_button(page, "Save stream")
    expect(page.locator("#told")).to_contain_text("The stream pgbouncer.logs.prod is saved.")
    events = [{"event_message": "e", "metadata": {"level": level}} for level in ("debug", "info")]
    assert service.send("pgbouncer.logs.prod", events).json()["dropped"] == 1
    # The second transform is added in the TOML syntax in which the first transform is stored.
    expect(status_message(page)).to_contain_text("It does what is served.")
    click_button(page, "Add a transform")
    page.keyboard.type("m.level:trace")
    expect(status_message(page)).to_contain_text("Valid. Changed: transform.")
    click_button(page, "Save stream")
    expect(status_message(page)).to_contain_text("It does what is served.")
    actions = service.client.get("/api/sources/pgbouncer.logs.prod").json()["transform"]
    assert sorted(action["drop"] for action in actions) == ["m.level:debug", "m.level:trace"]
    click_button(page, "Delete…")
    click_button(page, "Delete pgbouncer.logs.prod")
    expect(status_message(page)).to_be_hidden()
    assert service.client.get("/api/sources/pgbouncer.logs.prod").json()["transform"] == []


def test_a_new_stream_is_created(tab: Tab, service: Service) -> None:
    """Create a stream in three steps: New stream, its name, Save."""
    page = tab.open("streams")
    name_and_save(page, "stream", "my.app", "made.stream")
    assert service.client.get("/api/sources/made.stream").json()["retention_days"] == 30


def test_an_earlier_version_is_viewed_and_restored(tab: Tab, service: Service) -> None:
    """Restore an earlier version in three steps: Edit, Versions, Restore."""
    name = create_endpoint(service, "restored")
    assert service.client.put(f"/api/endpoints/{name}", json={"max_limit": 1}).status_code == 200
    page = tab.open(f"endpoints?endpoint={name}&p.wanted=seen&run=1")
    expect(page.locator(".receipt")).to_contain_text("One row")
    click_button(page, "Edit")
    text_area(page)
    page.get_by_text("Versions", exact=True).click()
    click_button(page, "Show version 1")
    expect(text_area(page)).to_have_value(re.compile("max_rows = 3"))
    expect(status_message(page)).to_contain_text("Version 1 is in the editor; it is not saved.")
    click_button(page, "Discard changes")
    expect(text_area(page)).to_have_value(re.compile("max_rows = 1"))
    click_button(page, "Restore version 1")
    expect(page.locator("#told")).to_contain_text("Version 1 is served again.")
    expect(text_area(page)).to_have_value(re.compile("max_rows = 3"))
    expect(page.locator(".receipt")).to_contain_text("3 rows")
    expect(page.get_by_role("button", name="Show version 3")).to_be_visible()


@pytest.mark.parametrize("choice", ["Save mine over it", "Take theirs"])
def test_a_concurrent_change_is_shown_and_no_text_is_lost(tab: Tab, service: Service, choice: str) -> None:
    """Resolve a conflict in two steps after Save: view the other text, and choose one of the two texts."""
    tab.expect_refusal(412)
    name = "shared." + choice.split(" ", maxsplit=1)[0].lower()
    page = open_new_definition(tab, service, name)
    replace_text(page, "max_rows = 3", "max_rows = 4")
    other_text = {"max_limit": 1, "description": HOSTILE_MARKUP}
    assert service.client.put(f"/api/endpoints/{name}", json=other_text).status_code == 200
    click_button(page, "Save endpoint")
    expect(status_message(page)).to_contain_text("Somebody else has changed it meanwhile.")
    expect(text_area(page)).to_have_value(re.compile("max_rows = 4"))
    page.get_by_text("Look at theirs").click()
    expect(page.get_by_role("region", name="Their text")).to_contain_text("max_rows = 1")
    expect(page.locator(".other", has_text="max_rows = 1")).to_be_visible()
    expect(page.locator("main img")).to_have_count(0)
    tab.save_screenshot("theirs")
    click_button(page, choice)
    if choice == "Take theirs":
        expect(text_area(page)).to_have_value(re.compile("max_rows = 1"))
        page.keyboard.press("Control+z")
        expect(text_area(page)).to_have_value(re.compile("max_rows = 4"))
        return
    expect(page.locator("#told")).to_contain_text("is saved")
    assert service.client.get(f"/api/endpoints/{name}").json()["max_limit"] == 4


def test_text_typed_during_a_save_stays(tab: Tab, service: Service) -> None:
    page = open_new_definition(tab, service, "quick")
    save = HeldRequest(page, "**/api/endpoints/quick")
    replace_text(page, "max_rows = 3", "max_rows = 4")
    click_button(page, "Save endpoint")
    held_request = save.sent()
    replace_text(page, "max_rows = 4", "max_rows = 5")
    expect(status_message(page)).to_contain_text("max_rows 3 → 5")
    held_request.continue_()
    expect(page.locator("#told")).to_contain_text("is saved")
    expect(status_message(page)).to_contain_text("Valid. Changed: max_rows 4 → 5.")
    expect(text_area(page)).to_have_value(re.compile("max_rows = 5"))
    assert service.client.get("/api/endpoints/quick").json()["max_limit"] == 4


def test_a_definition_deleted_meanwhile_is_saved_again(tab: Tab, service: Service) -> None:
    """Save a deleted definition in two steps: Save, and Save it again."""
    tab.expect_refusal(404)
    page = open_new_definition(tab, service, "removed")
    replace_text(page, "max_rows = 3", "max_rows = 4")
    expect(status_message(page)).to_contain_text("Valid. Changed")
    assert service.client.delete("/api/endpoints/removed").status_code == 204
    click_button(page, "Save endpoint")
    expect(status_message(page)).to_contain_text("removed has been deleted meanwhile.")
    click_button(page, "Save it again")
    expect(page.locator("#told")).to_contain_text("is saved")
    assert service.client.get("/api/endpoints/removed").json()["max_limit"] == 4


def test_unsaved_text_is_kept_and_not_shown_for_another_key(tab: Tab, service: Service) -> None:
    page = open_new_definition(tab, service, "unsaved")
    replace_text(page, "max_rows = 3", "max_rows = 77")
    page.get_by_role("link", name="Streams").click()
    expect(page.get_by_role("heading", name="Streams")).to_be_attached()
    page.get_by_role("link", name="Endpoints").click()
    expect(text_area(page)).to_have_value(re.compile("max_rows = 77"))
    page.reload()
    expect(text_area(page)).to_have_value(re.compile("max_rows = 77"))
    expect(status_message(page)).to_contain_text("This is what you typed before. It is not saved.")
    click_button(page, "Close")
    expect(status_message(page)).to_be_hidden()
    expect(page.get_by_role("button", name="Edit", exact=True)).to_be_focused()
    click_button(page, "Edit")
    expect(text_area(page)).to_have_value(re.compile("max_rows = 77"))
    page.get_by_role("button", name=re.compile("^Key")).click()
    click_button(page, "Forget the key")
    assert "max_rows" not in page.evaluate("JSON.stringify(sessionStorage)")
    page.get_by_label("Key", exact=True).fill(tab.new_key(scopes="private"))
    click_button(page, "Open")
    expect(text_area(page)).to_have_value(re.compile("max_rows = 3"))


def test_an_endpoint_is_deleted_after_confirmation(tab: Tab, service: Service) -> None:
    """Delete an endpoint in three steps: Edit, Delete, and Delete again to confirm."""
    page = open_new_definition(tab, service, "unwanted")
    click_button(page, "Delete…")
    click_button(page, "Keep it")
    click_button(page, "Delete…")
    expect(page.get_by_role("button", name="Delete unwanted")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#told")).to_contain_text("The endpoint unwanted is deleted.")
    expect(page.locator("#content")).to_be_focused()
    expect(page.get_by_role("link", name="unwanted")).to_have_count(0)
    assert service.client.get("/api/endpoints/unwanted").status_code == 404


def test_a_restricted_key_sees_no_edit_buttons(tab: Tab, service: Service) -> None:
    name = create_endpoint(service, "guarded")
    tab.demo = Demo(tab.demo.process, "", tab.demo.temporary, tab.demo.url, tab.new_key(scopes="private", redact=True))
    page = tab.open(f"endpoints?endpoint={name}&edit=1")
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    expect(page.get_by_text(re.compile("^(Edit|Copy as new|New endpoint)$"))).to_have_count(0)
    expect(status_message(page)).to_be_hidden()
    page.goto(f"{tab.demo.url}/#streams?edit=new")
    expect(page.get_by_role("link", name="Show its events")).to_be_visible()
    expect(page.get_by_role("button", name="Edit")).to_have_count(0)
    expect(page.get_by_role("link", name="New stream")).to_be_hidden()
    expect(status_message(page)).to_be_hidden()


def test_markup_in_names_and_texts_is_shown_as_text(tab: Tab, service: Service) -> None:
    name = create_endpoint(
        service, f"{HOSTILE_MARKUP}.x", description=HOSTILE_MARKUP, query=f'select "{HOSTILE_MARKUP}" as markup'
    )
    page = tab.open("endpoints")
    page.get_by_role("link", name=re.compile("^<img.*x ")).click()
    click_button(page, "Edit")
    expect(text_area(page)).to_have_value(re.compile(re.escape(HOSTILE_MARKUP)))
    expect(page.get_by_role("heading", name=f"Edit {name}")).to_be_visible()
    page.get_by_text("Versions", exact=True).click()
    expect(page.get_by_role("button", name="Show version 1")).to_be_visible()
    click_button(page, "Delete…")
    expect(status_message(page)).to_contain_text(f"Delete {name}?")
    expect(page.locator("main img")).to_have_count(0)
    expect(page).to_have_title("Endpoints · cordwood")
    click_button(page, f"Delete {name}")
    expect(page.locator("#told")).to_contain_text("is deleted")


def test_settings_streams_and_fields_are_completed(tab: Tab, service: Service) -> None:
    tab.expect_refusal(422)
    page = open_new_definition(tab, service, "completed")
    options = page.get_by_role("listbox", name="Completions").get_by_role("option")
    text = text_area(page)
    text.fill('/*\nname = "completed"\n')
    text.press("End")
    page.keyboard.type("max")
    expect(options).to_have_text(["max_rows = "])
    page.keyboard.press("Tab")
    page.keyboard.type("9\n*/\nselect m.level from `postg")
    expect(options.first).to_contain_text("`postgres.logs`")
    page.keyboard.press("Tab")
    page.keyboard.type(" as")
    expect(options.first).to_have_text("as")
    # Tab does not change a word that is already complete.
    page.keyboard.press("Tab")
    page.keyboard.type(" t cross join unnest(metadata) as m where m.datab")
    expect(options.first).to_contain_text("m.database")
    page.keyboard.press("Tab")
    page.keyboard.type(" = 'orders'")
    expect(status_message(page)).to_contain_text("Valid. Changed: query, max_rows 3 → 9")


def test_an_endpoint_is_changed_with_the_keyboard_alone(tab: Tab, service: Service) -> None:
    name = create_endpoint(service, "typed")
    page = tab.open(f"endpoints?endpoint={name}")
    page.get_by_role("button", name="Edit", exact=True).focus()
    page.keyboard.press("Enter")
    expect(text_area(page)).to_be_focused()
    expect(status_message(page)).to_contain_text("It does what is served.")
    page.keyboard.press("Control+End")
    page.keyboard.type(" and true")
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#told")).to_contain_text("The endpoint typed is saved.")
    assert "and true" in service.client.get(f"/api/endpoints/{name}").json()["query"]
    # The Tab key moves the focus out of the text area, so that the keyboard alone suffices.
    page.keyboard.press("Tab")
    expect(text_area(page)).not_to_be_focused()


PLACES = {
    "endpoint": "endpoints?endpoint=pictured&edit=1",
    "stream": "streams?stream=postgres.logs&edit=1",
}


@ALL_LOOKS
def test_the_editor_is_accessible_and_fits_the_screen(
    open_tab_with_look: OpenTab, service: Service, width: int, scheme: str
) -> None:
    if service.client.get("/api/endpoints/pictured").status_code == 404:
        lines = QUERY.replace(" from", "\nfrom").replace(" where", "\nwhere")
        query = f"-- One message, newest first.\n{lines}\norder by t.timestamp desc"
        alert = {"every": "5m", "condition": "rows > 10", "text": "{value} times: {event_message}"}
        create_endpoint(service, "pictured", description="The events of one message.", query=query, alert=alert)
    tab = open_tab_with_look(width, scheme)
    tab.expect_refusal(422)
    page = tab.open("endpoints")
    load_axe(page)
    for noun, place in PLACES.items():
        page.goto(f"{tab.demo.url}/#{place}")
        replace_text(page, "\nname =", "\nnam =", noun)
        expect(page.locator(".definition .wrong").first).to_be_visible()
        page.get_by_text("Versions", exact=True).click()
        tab.save_screenshot(noun)
        assert serious_faults(page) == [], noun
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), noun
        # The coloured text must lie exactly below the typed text, even at the end of a long text.
        text_area(page, noun).press("Control+End")
        page.keyboard.insert_text("a long line " * 40 + "\n" * 40 + "end")
        places = "[...document.querySelectorAll('.definition .editor-text, .definition .editor-paint')]"
        wait_until_true(page, f"(([typed, painted]) => typed.scrollTop > 0 && painted.scrollTop > 0)({places})")
        typed, painted = page.evaluate(f"{places}.map(e => [e.scrollTop, e.scrollHeight, e.clientWidth])")
        assert typed == painted
