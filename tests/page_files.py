"""Files that are dropped onto a page."""


def drop_file(page, selector, name, data):
    """Drop a file of these bytes, as a browser does."""
    transfer = page.evaluate_handle(
        "([name, bytes]) => { const transfer = new DataTransfer();"
        " transfer.items.add(new File([new Uint8Array(bytes)], name)); return transfer; }",
        [name, list(data)],
    )
    for event in ("dragenter", "dragover", "drop"):
        page.locator(selector).dispatch_event(event, {"dataTransfer": transfer})
