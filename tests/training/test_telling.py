"""What a person is told before the first window."""

from __future__ import annotations

from types import SimpleNamespace

from visiontrain.data.description import load_description
from visiontrain.data.index import open_index
from visiontrain.distributed import ALONE
from visiontrain.training.telling import notices


def test_an_index_that_cannot_be_kept_is_told_once(tiny, user_cache, tmp_path):
    user_cache.write_text("a file where the folder should be")
    train, val = (open_index(load_description(tiny), split) for split in ("train", "val"))
    config = SimpleNamespace(workers=0, output=SimpleNamespace(loggers=""))
    setup = SimpleNamespace(train=train, val=val, folder=tmp_path, resumed=None, config=config, ranks=ALONE, workers=0)
    told = list(notices(setup, None))
    (notice,) = [each for each in told if "not kept" in each.text]
    assert notice.level == "warning" and str(user_cache) in notice.text and "VISIONTRAIN_CACHE" in notice.text
