"""Script groups that this node has started, one file each, so that its successor can end them."""

from pathlib import Path

import msgspec

from punctual.tasks.group import Group, kill_left_behind


class GroupFiles:
    """Written by the thread that runs the script, before the script begins."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def on_started(self, run_id: str, group: Group) -> None:
        path = self._folder / run_id
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(group))
        new.rename(path)

    def on_ended(self, run_id: str, group: Group) -> None:  # noqa: ARG002
        (self._folder / run_id).unlink(missing_ok=True)

    def end_all(self) -> int:
        """Kill what a predecessor left running; how many groups were still there."""
        killed = 0
        for path in list(self._folder.iterdir()):
            if path.suffix != ".new":
                group = msgspec.json.decode(path.read_bytes(), type=Group)
                killed += kill_left_behind(group.pgid, group.start_time)
            path.unlink()
        return killed
