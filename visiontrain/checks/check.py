"""`visiontrain check`: the data, then a trial of the training, told as it goes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from visiontrain.checks.data import DataReport, examine
from visiontrain.checks.export import export_rows
from visiontrain.checks.preflight import Preflight, preflight
from visiontrain.checks.report import as_json, data_text, export_text, plan_text, preflight_text, summary
from visiontrain.checks.rows import FAIL, Row
from visiontrain.config.build import build
from visiontrain.config.schema import CheckConfig, TrainConfig
from visiontrain.config.values import leaves_of
from visiontrain.data.description import load_description
from visiontrain.data.index import index_of
from visiontrain.data.labels import Finding
from visiontrain.distributed import Ranks, joined
from visiontrain.errors import DataError
from visiontrain.inline import Told, bar, steps
from visiontrain.terminal import look_of
from visiontrain.training.setup import chosen


@dataclass(frozen=True, slots=True, repr=False)
class CheckResult(Told):
    """What a check found. ``preflight`` is None where it was not run; ``not_run`` says why. ``exports`` has a row for each format.

    Every rank has the same; ``main`` is the one that tells it.
    """

    data: DataReport
    preflight: Preflight | None
    not_run: str
    settings: dict[str, Any]
    main: bool = True
    exports: Sequence[Row] = ()

    def sentences(self) -> list[str]:
        """What it all comes to; the rest was told while it was found."""
        return [summary(self.data, self.preflight, self.not_run, self.exports).strip()]

    @property
    def findings(self) -> list[Finding]:
        """All findings in the data, faults and notes."""
        return self.data.findings

    @property
    def rows(self) -> list[Row]:
        """The rows of the preflight."""
        return self.preflight.rows if self.preflight else []

    @property
    def exit_code(self) -> int:
        """3 for faults in the data, else 1 for a failed row of the preflight, else 0."""
        if self.data.faults:
            return DataError.exit_code
        failed = self.preflight.failed if self.preflight else []
        return 1 if failed or any(row.verdict == FAIL for row in self.exports) else 0

    def to_json(self) -> dict[str, Any]:
        """Plain values for one line of JSON (docs/contracts.md)."""
        return as_json(self.data, self.preflight, self.not_run, self.settings, self.exports)


def run_check(config: CheckConfig, tell: Callable[[str], None] = print) -> CheckResult:
    """Look at the data, then try the training; with the other ranks, where a launcher started several.

    Args:
        config: settings.
        tell: called with each part of the report as soon as it is known, on rank 0 alone.

    Raises:
        ConfigError: settings that contradict each other or this machine.
        DataError: there is no such description, or it is wrong.
        WeightsError: the checkpoint to start from cannot be used.
        RankLost: another rank is gone.
    """
    with joined(config.timeout) as ranks:
        return look(config, tell if ranks.main else _silent, ranks)


def look(config: CheckConfig, tell: Callable[[str], None], ranks: Ranks) -> CheckResult:
    """The same among ranks that have met: rank 0 looks at the data, all try the training, and all get one result."""
    report, shown = ranks.first(lambda: _examine(config)), look_of(sys.stdout)
    tell(data_text(report, shown))
    not_run = "preflight=false" if not config.preflight else unusable(report)
    settings = training(config)
    exports = [] if unusable(report) else ranks.first(lambda: _exports(config, settings, report, ranks.size))
    if exports:
        tell(export_text(exports, shown))
    if not_run:
        tell(summary(report, None, not_run, exports, shown))
        return CheckResult(report, None, not_run, config.leaves(), ranks.main, exports)
    train, val = (chosen(settings, index_of(report.scans[split]), report.description) for split in ("train", "val"))
    with bar(bar_format="{desc} {elapsed}", leave=False, disable=None if ranks.main else True) as progress:

        def show_plan(plan: Sequence[str]) -> None:
            progress.clear()
            tell(plan_text(plan, shown))

        found = preflight(
            settings,
            train,
            val,
            show_plan,
            lambda what: progress.set_description(what),
            ranks,
        )
    tell(preflight_text(found, shown))
    tell(summary(report, found, "", exports, shown))
    return CheckResult(report, found, "", config.leaves(), ranks.main, exports)


def _exports(config: CheckConfig, settings: TrainConfig, report: DataReport, ranks: int) -> list[Row]:
    names = chosen(settings, index_of(report.scans["train"]), report.description).names
    return export_rows(config.export, settings, names, ranks)


def _silent(text: str) -> None:
    """Rank 0 has told it."""


def training(config: CheckConfig) -> TrainConfig:
    """The settings of the training that is checked."""
    known = leaves_of(TrainConfig)
    values = {name: value for name, value in config.values().items() if name in known}
    return build(TrainConfig, values, frozenset(config.given & known.keys()))


def unusable(report: DataReport) -> str:
    """Why nothing can be trained on these data, or ""."""
    for split in ("train", "val"):
        if split not in report.description.splits:
            return f"the description has no {split} split"
        if split in report.unusable or not report.scans[split].pictures:
            return f"the {split} split cannot be used"
    return ""


def _examine(config: CheckConfig) -> DataReport:
    description = load_description(config.data, config.download)
    with bar(unit="img", leave=False, disable=None) as shown:
        return examine(description, config.imgsz, steps(shown))
