"""The page and the door, in a browser: signing in, and pages of other sites."""

import http.server
import threading

import pytest


def test_W06_the_address_of_the_page_does_not_keep_the_token(page, studio):
    page.wait_for_selector("[data-view]")
    assert studio.token not in page.evaluate("location.href + document.referrer + document.cookie")
    assert studio.token not in page.content()
    assert page.evaluate("history.length") <= 2


def test_a_page_opens_in_a_browser(page):
    page.wait_for_selector("[data-view]")
    assert page.title().endswith("clearhead studio")


def test_without_the_token_a_browser_shows_what_to_do(browser, studio):
    page = browser.new_page()
    page.goto(f"{studio.address}/")
    assert "Open the link that `clearhead studio` has printed" in page.inner_text("body")
    page.close()


def test_the_state_after_the_link_survives_the_sign_in(browser, studio):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{studio.url}#view=text&text=abc")
    assert page.url.startswith(f"{studio.address}/#")
    assert "token" not in page.url
    context.close()


ATTACK = """async (address) => {
  const results = {};
  const attempt = async (name, work) => {
    try {
      results[name] = await work();
    } catch (error) {
      results[name] = `refused: ${error.name}`;
    }
  };
  const json = { "Content-Type": "application/json", "X-Clearhead": "studio" };
  await attempt("read", async () =>
    (await fetch(`${address}/api/status`, {credentials: "include"})).text());
  await attempt("command", async () => (await fetch(`${address}/api/ask/list_models`,
    {method: "POST", headers: json, body: "{}", credentials: "include"})).text());
  await attempt("blind", async () => (await fetch(`${address}/api/ask/list_models`,
    {method: "POST", mode: "no-cors", body: "{}", credentials: "include"})).type);
  await attempt("events", () => new Promise((resolve) => {
    const source = new EventSource(`${address}/api/runs/substring/events`, {withCredentials: true});
    source.onmessage = () => { resolve("message"); source.close(); };
    source.onerror = () => { resolve("refused"); source.close(); };
  }));
  await attempt("script", () => new Promise((resolve) => {
    const script = document.createElement("script");
    script.onload = () => resolve("loaded");
    script.onerror = () => resolve("refused");
    script.src = `${address}/main.js`;
    document.head.append(script);
  }));
  return results;
}"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_W24_a_page_of_another_port_can_neither_read_nor_command(browser, studio, tmp_path, host):
    """The browser is signed in, and the page of the other server knows where the studio is."""
    (tmp_path / "index.html").write_text("<title>another site</title>")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=tmp_path)

        def log_message(self, *_):
            pass

    context = browser.new_context()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = context.new_page()
        page.goto(studio.url)
        page.goto(f"http://{host}:{server.server_address[1]}/index.html")
        results = page.evaluate(ATTACK, studio.address)
        framed = page.evaluate(
            """async (address) => {
              const frame = document.createElement("iframe");
              const loaded = new Promise((resolve) => { frame.onload = resolve; });
              frame.src = address;
              document.body.append(frame);
              await loaded;
              try { return frame.contentDocument === null; } catch { return true; }
            }""",
            studio.address,
        )
        context.close()
        server.shutdown()
    refused = "refused: TypeError"
    assert results["read"] == results["command"] == refused
    assert results["blind"] in (refused, "opaque")  # it never learns what the answer is
    assert results["events"] == results["script"] == "refused"
    assert framed
