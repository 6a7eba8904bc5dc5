"""Check that imports follow the layers, by the contracts of import-linter in pyproject.toml."""

from importlinter.cli import lint_imports

from tests.architecture.tree import ROOT


def test_every_import_obeys_the_contracts() -> None:
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0
