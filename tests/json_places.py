"""Every place in some JSON, and the same JSON with another value there."""


def places(value, path=()):
    """The path to every value; of long lists the first one only."""
    yield path
    inner = value.items() if isinstance(value, dict) else list(enumerate(value))[:1] if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*path, key))


def changed(value, path, new):
    """A copy with a new value at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy
