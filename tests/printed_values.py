"""Whether a number on the page is the one that PyTorch computes."""


def agrees(text, value, noise=0.0):
    """Whether a printed number is this value, rounded as the page rounds (format.js).

    The last bits of a float32 differ from machine to machine and with the number of threads; so a
    value that lies between two printed numbers may be either. noise: the error of a value that is
    the difference of larger ones.
    """
    text, value = text.replace("−", "-"), float(value)
    digits, _, exponent = text.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(digits.partition(".")[2]))  # of the last digit
    return abs(float(text) - value) <= 0.5 * unit + 1e-5 * abs(value) + noise
