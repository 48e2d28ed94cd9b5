"""The licence that the package names is the licence that the repository holds."""

from pathlib import Path

from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).parents[3]


def test_package_names_its_licence_and_brings_it_along() -> None:
    core = ProjectMetadata(str(ROOT), PluginManager()).core
    assert core.license_expression == "Apache-2.0"
    assert core.license_files == ["LICENSE"]
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text.splitlines()[1]
    assert "END OF TERMS AND CONDITIONS" in text
