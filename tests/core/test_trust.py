import pytest

from fedpace.core import ConfigError, Registry, import_path, is_import_path, refuse_import_paths, trusted_files
from fedpace.models import models

CODE = "subprocess:getoutput"


@pytest.mark.parametrize(
    "table",
    [
        {"model": CODE},
        {"model": {"name": CODE, "cmd": "id"}},
        {"data": {"options": {"name": CODE}}},
        {"data": {"augment": ["flip", {"name": CODE}]}},
        {"tunable": {"aggregate.rule": {"choices": ["mean", CODE]}}},
    ],
)
def test_a_file_that_names_code_is_refused_wherever_it_does(table):
    with pytest.raises(ConfigError, match=r"^shared.toml: \S+ = 'subprocess:getoutput' is code .* --trust"):
        refuse_import_paths(table, "shared.toml")
    with trusted_files():
        refuse_import_paths(table, "shared.toml")
    with pytest.raises(ConfigError):
        refuse_import_paths(table, "shared.toml")


def test_other_texts_with_a_colon_are_none_of_its_business():
    texts = ["C:/data", r"C:\data", "a note: this", "07:32:00", "https://example.org", ":a", "a:", "my-file:x", "a:b:c"]
    refuse_import_paths({"texts": texts}, "shared.toml")


@pytest.mark.parametrize("text", ["C:/data", "a note: this", "my-module:x", "os:path:join", ".os:path", "os:", "07:32"])
def test_nothing_is_imported_that_is_not_refused_in_files(text):
    """What may be imported and what is refused are told by one function."""
    assert not is_import_path(text)
    with pytest.raises(ConfigError, match="cannot be imported"):
        import_path(text, "rule")


def test_a_table_may_be_deep():
    table: dict = {"model": CODE}
    for _ in range(100_000):
        table = {"x": table}
    with pytest.raises(ConfigError):
        refuse_import_paths(table, "deep.json")
    while "x" in table:  # python frees nested tables by recursion
        table = table["x"]


def test_every_registry_imports_through_the_same_door():
    assert type(models) is Registry
    with pytest.raises(ConfigError, match="cannot be imported"):
        models.get("no_such_module:Net")
