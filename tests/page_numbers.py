"""How the page prints numbers (format.js), and waiting for what it shows."""

import math
import re

from printed_values import agrees

from clearhead.timing import Timer

SECONDS = 60
NUMBER = re.compile(r"−?\d[\d,]*(?:\.\d+)?(?:e[+−]?\d+)?")


def printed(x, digits=4):
    """As `number` prints it: very small and very large numbers as 1.2e−7."""
    x = float(x)
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "∞" if x > 0 else "−∞"
    if x and (abs(x) < 0.5 * 10**-digits or abs(x) >= 1e7):
        mantissa, _, exponent = f"{x:.1e}".partition("e")
        return f"{mantissa}e{int(exponent):+d}".replace("-", "−")
    words = f"{x:.{digits}f}"
    return words.removeprefix("-") if float(words) == 0 else words.replace("-", "−")


print_number = printed


def printed_share(p):
    """As `percent` prints it."""
    return f"{100 * float(p):.1f} %"


def wait_for(page, selector, texts):
    """Until the elements have exactly these texts."""
    page.wait_for_function(
        "([selector, texts]) => JSON.stringify(texts) === JSON.stringify("
        "[...document.querySelectorAll(selector)].map((x) => x.textContent))",
        arg=[selector, texts],
        timeout=1000 * SECONDS,
    )


def wait_for_numbers(page, selector, values):
    """Until the numbers in the elements, one after the other, are these, as printed there."""
    values, timer = [float(value) for value in values], Timer()
    while True:
        texts = page.locator(selector).all_text_contents()
        found = [each.replace(",", "") for text in texts for each in NUMBER.findall(text)]
        if len(found) == len(values) and all(map(agrees, found, values)):
            return
        assert timer.seconds < SECONDS, f"{selector} shows {found}, not {values}"
        page.wait_for_timeout(50)
