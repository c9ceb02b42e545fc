"""MLflow: files in RUN/mlflow, or where the user's MLFLOW_TRACKING_URI says."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from visiontrain.record.events import Event, RunEnded, RunStarted, WindowClosed
from visiontrain.record.files import write_text
from visiontrain.record.sinks.points import points

STATUS = {"finished": "FINISHED", "stopped early": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
# Copied into MLflow at the end, those that are there; checkpoints are large and stay in the run folder.
ARTIFACTS = ("report.html", "run.json", "args.yaml", "metrics.csv", "*.png")
LONGEST, AT_ONCE = 500, 100  # of a parameter's text, and parameters in one call: what every MLflow server takes


class MLflow:
    """One MLflow run for a visiontrain run, also over resumes: settings, the numbers of each epoch over images seen, files.

    MLflow's fluent interface (``mlflow.start_run``) and its active run are the user's and left alone.
    """

    name = needs = "mlflow"

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would ask its server for a setting at import
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")  # it complains where there is no git
        store = None
        if not os.environ.get("MLFLOW_TRACKING_URI"):
            # Files need no database packages; MLflow asks for a word of consent, since it no longer works on them.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            store = (folder / self.name).absolute().as_uri()
        from mlflow import MlflowClient

        self._client, self._folder = MlflowClient(tracking_uri=store), folder
        self._id, self._images_seen, self._known = "", 0, -1
        self._status = "FAILED"

    @staticmethod
    def look(folder: Path) -> str:
        """How to look at it."""
        if uri := os.environ.get("MLFLOW_TRACKING_URI"):
            return f"MLflow: logs to {uri} (MLFLOW_TRACKING_URI)"
        command = f"MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {folder / 'mlflow'}"
        return f"MLflow: {command} (of the package mlflow; steps are images seen)"

    def __call__(self, event: Event) -> None:
        """Log what the event has; windows are too many for MLflow."""
        if isinstance(event, RunStarted):
            self._start(event)
        if (counters := getattr(event, "counters", None)) is not None:
            self._images_seen = counters.images_seen
        if not isinstance(event, WindowClosed) and (numbers := points(event)):
            self._log(numbers)
        if isinstance(event, RunEnded):
            self._status = STATUS[event.outcome]
            for path in sorted(path for name in ARTIFACTS for path in self._folder.glob(name)):
                self._client.log_artifact(self._id, str(path))

    def close(self) -> None:
        """End the MLflow run."""
        if self._id:
            self._client.set_terminated(self._id, self._status)

    def _start(self, event: RunStarted) -> None:
        path = self._folder / self.name / "id.txt"
        if event.counters.images_seen and path.exists():
            self._id = path.read_text(encoding="utf-8")
            self._client.update_run(self._id, status="RUNNING")
            self._known = self._last_step()
        else:
            self._id = self._create(event)
            path.parent.mkdir(exist_ok=True)
            write_text(path, self._id)

    def _create(self, event: RunStarted) -> str:
        from mlflow.entities import Param

        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "visiontrain")
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        tags = {"mlflow.note.content": "\n\n".join(event.plan)}
        run: str = self._client.create_run(number, run_name=self._folder.name, tags=tags).info.run_id
        settings = event.facts.get("settings", {})
        params = [Param(key, str(value)[:LONGEST]) for key, value in settings.items()]
        for first in range(0, len(params), AT_ONCE):
            self._client.log_batch(run, params=params[first : first + AT_ONCE])
        return run

    def _last_step(self) -> int:
        """A killed run may have logged what lies past the checkpoint; it comes again, the same, and is not logged twice."""
        logged = [self._client.get_metric_history(self._id, key) for key in ("epoch", "metrics/ap")]
        return max((point.step for history in logged for point in history), default=-1)

    def _log(self, numbers: dict[str, Any]) -> None:
        from mlflow.entities import Metric

        if self._images_seen > self._known or any(key.startswith("best/") for key in numbers):
            now = int(time.time() * 1000)
            metrics = [Metric(key, value, now, self._images_seen) for key, value in numbers.items()]
            self._client.log_batch(self._id, metrics=metrics)
