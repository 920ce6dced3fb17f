"""Text as models take it. Pure."""


def cleaned(text: str) -> str:
    """A text without NUL and without halves of characters; two halves that belong together become one character."""
    whole = text.replace("\0", "")
    try:
        whole.encode()
    except UnicodeEncodeError:
        return whole.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
    return whole
