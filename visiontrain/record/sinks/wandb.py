"""Weights & Biases: files in RUN/wandb, sent nowhere unless the user asked for it."""

from __future__ import annotations

import netrc
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from visiontrain.paths import cache_dir
from visiontrain.record.events import EpochEnded, Event, RunEnded, RunStarted, Validated
from visiontrain.record.files import write_text
from visiontrain.record.sinks.drawings import drawn
from visiontrain.record.sinks.points import best, points

HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")  # where ``wandb login`` logs in, by version
# Nothing of the machine, the command, the code or the console goes along; those with x_ are W&B's own names for it.
PRIVATE = {
    "console": "off",
    "disable_git": True,
    "save_code": False,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}
FLUSHED = {"x_transaction_log_flush_interval": 1.0}  # seconds: what kill -9 may lose


class WeightsAndBiases:
    """One W&B run for a visiontrain run, also over resumes. W&B's step is the update; curves are over images seen.

    Offline unless WANDB_MODE, WANDB_API_KEY or a login of the user says otherwise. The user's own W&B runs in this process
    are left alone.
    """

    name = needs = "wandb"

    def __init__(self, folder: Path) -> None:
        # W&B reports its own errors home, offline too, and keeps a log of its service in the user's cache.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_CACHE_DIR", str(cache_dir()))
        import wandb

        self._wandb, self._folder = wandb, folder
        self._run: Any = None
        self._update = self._images_seen = 0
        self._exit_code = 1

    @staticmethod
    def look(folder: Path) -> str:
        """How to look at it."""
        if online():
            return "W&B: sends this run to where you are logged in (WANDB_MODE=offline keeps it here)"
        return f"W&B: offline; send it with: wandb sync {folder / 'wandb' / 'offline-run-*'}"

    def __call__(self, event: Event) -> None:
        """Log what the event has."""
        if isinstance(event, RunStarted):
            self._start(event)
        if (counters := getattr(event, "counters", None)) is not None:
            self._update, self._images_seen = counters.updates_attempted, counters.images_seen
        if isinstance(event, RunEnded):
            self._exit_code = 0 if event.outcome in ("finished", "stopped early") else 1
            self._run.summary.update(points(event))
        elif numbers := points(event):
            self._log(numbers)
        if isinstance(event, EpochEnded | Validated) and event.best:
            self._run.summary.update(best(event.metrics))
        if pictures := drawn(event):
            self._log(
                {Path(name).stem: self._wandb.Image(picture, file_type="jpg") for name, picture in pictures.items()}
            )

    def close(self) -> None:
        """End the W&B run, so that the next training of this process has one of its own."""
        if self._run is not None:
            self._run.finish(exit_code=self._exit_code)

    def _start(self, event: RunStarted) -> None:
        settings = self._wandb.Settings(**PRIVATE, **FLUSHED, quiet=True, silent=not online())
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "visiontrain"),
            name=os.environ.get("WANDB_NAME", self._folder.name),
            id=self._id(event),
            resume="allow",
            reinit="create_new",
            mode=None if online() else "offline",
            dir=self._folder,
            config={**event.facts.get("settings", {}), "plan": list(event.plan)},
            allow_val_change=True,
            settings=settings,
        )
        self._run.define_metric("images_seen")
        self._run.define_metric("*", step_metric="images_seen")

    def _log(self, values: dict[str, Any]) -> None:
        self._run.log({**values, "images_seen": self._images_seen}, step=self._update)

    def _id(self, event: RunStarted) -> str:
        """A new one for a new run, and the same for one that goes on."""
        path = self._folder / "wandb" / "id.txt"
        if event.counters.images_seen and path.exists():
            return path.read_text(encoding="utf-8")
        path.parent.mkdir(exist_ok=True)
        write_text(path, secrets.token_hex(4))
        return path.read_text(encoding="utf-8")


def online() -> bool:
    """Whether the user asked for the network: by WANDB_MODE, an API key, or ``wandb login`` at some time."""
    if mode := os.environ.get("WANDB_MODE"):
        return mode not in ("offline", "dryrun", "disabled")
    if os.environ.get("WANDB_API_KEY"):
        return True
    own = urlsplit(os.environ.get("WANDB_BASE_URL", "")).netloc
    with suppress(OSError, netrc.NetrcParseError):
        known = netrc.netrc(os.environ.get("NETRC"))
        return any(host in known.hosts for host in ([own] if own else HOSTS))
    return False
