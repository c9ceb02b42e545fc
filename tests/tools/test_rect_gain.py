from __future__ import annotations

from tools.rect_gain import main


def test_square_pictures_save_nothing_and_halves_of_the_size_do(tiny, capsys):
    main([f"data={tiny}", "nbs=4,13", "imgsz=64"])
    said = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in said] == ["rect 100%, shuffled 100%, alone 100%"] * 2
    main([f"data={tiny}", "imgsz=64,128", "epochs=2"])
    assert "13 pictures, 64 per update: rect 50%, shuffled 50%, alone 50%" in capsys.readouterr().out
