"""Process groups of the scripts that this node has started, one file each.

The next start ends them.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from punctual.node.files.durable import make_folder, rename_durably, write_durably
from punctual.tasks.script.process_group import ProcessGroup, kill_leftover_group
from punctual.tasks.script.survivors import kill_survivors

UNREADABLE_SUFFIX = ".unreadable"
_TEMPORARY_SUFFIX = ".new"


class EndedGroups(NamedTuple):
    """What a previous node left: the number of groups killed, and the unreadable files.

    The name of an unreadable file is the id of the run.
    """

    killed: int
    unreadable_run_ids: list[str]


class GroupFiles:
    """Records process groups.

    The thread that runs the script writes the file before the script begins.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        make_folder(folder)

    def on_started(self, run_id: str, group: ProcessGroup) -> None:
        write_durably(self._folder / run_id, msgspec.json.encode(group))

    def on_ended(self, run_id: str, group: ProcessGroup) -> None:  # noqa: ARG002
        (self._folder / run_id).unlink(missing_ok=True)

    def end_all(self) -> EndedGroups:
        """Kill the groups that a previous node left running.

        An unreadable file does not stop the start. It is renamed, for a person to inspect.
        """
        killed = 0
        run_ids: list[str] = []
        unreadable_run_ids: list[str] = []
        for path in sorted(self._folder.iterdir()):
            if path.suffix == UNREADABLE_SUFFIX:
                continue
            if path.suffix != _TEMPORARY_SUFFIX:
                run_ids.append(path.name)
                try:
                    group = msgspec.json.decode(path.read_bytes(), type=ProcessGroup)
                except (msgspec.MsgspecError, OSError, UnicodeDecodeError):
                    rename_durably(path, path.with_name(path.name + UNREADABLE_SUFFIX))
                    unreadable_run_ids.append(path.name)
                    continue
                killed += kill_leftover_group(group.pgid, group.start_time)
            path.unlink()
        return EndedGroups(killed + kill_survivors(run_ids), unreadable_run_ids)
