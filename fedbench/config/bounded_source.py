"""A kind of directory that Hydra finds config files in, each of which is looked at before it is read.

Hydra reads ``file://`` directories as they are. The user's own get the scheme of this one instead.
"""

from __future__ import annotations

from pathlib import Path

from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from omegaconf import OmegaConf

from fedbench.config.bounds import fault_of
from fedbench.config.overrides import BOUNDED
from fedbench.config.user_code import without_user_code
from fedbench.core.errors import RequestError


class BoundedSource(ConfigSource):
    """A directory of config files with the limits of ``config/bounds.py``."""

    @staticmethod
    def scheme() -> str:
        """Return what its addresses begin with."""
        return BOUNDED

    def load_config(self, config_path: str) -> ConfigResult:
        """Read a config file.

        Raises:
            RequestError: If it is too large, too deep or expands to too much.
        """
        file = self._at(self._normalize_file_name(config_path))
        if not file.exists():
            raise ConfigLoadError(f"Config not found : {file}")
        if fault := fault_of(file):
            raise RequestError(f"{file} {fault}; shorten it")
        with file.open(encoding="utf-8") as text:
            header = ConfigSource._get_header_dict(text.read(512))
            text.seek(0)
            place = f"{BOUNDED}://{self.path}"
            return ConfigResult(config=OmegaConf.load(text), path=place, provider=self.provider, header=header)

    def available(self) -> bool:
        """Return whether the directory exists."""
        return self.is_group("")

    def is_group(self, config_path: str) -> bool:
        """Return whether there is such a group."""
        return self._at(config_path).is_dir()

    def is_config(self, config_path: str) -> bool:
        """Return whether there is such a file."""
        return self._at(self._normalize_file_name(config_path)).is_file()

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Return the groups and files of a group."""
        found: list[str] = []
        for name in sorted(path.name for path in self._at(config_path).iterdir()):
            self._list_add_result(
                files=found, file_path=str(Path(config_path, name)), file_name=name, results_filter=results_filter
            )
        return sorted(set(found))

    def _at(self, config_path: str) -> Path:
        return Path(self.path, config_path)


def known_to_hydra() -> None:
    """Make the scheme known to Hydra.

    Hydra imports all plugins that it finds when it is first asked; those in the user's directory are not found.
    """
    with without_user_code():
        Plugins.instance().register(BoundedSource)
