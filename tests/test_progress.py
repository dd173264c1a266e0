import io

from rich.console import Console

from freetickets.progress import WorkProgress


def test_logs_get_a_line_a_set_quiet_ones_warnings_and_terminals_a_bar(capsys):
    progress = WorkProgress()
    with progress.over(400):
        for name in ("first", "second"):
            progress.begin(name)
            progress.advance(200)
            progress.end(name)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("[ 50%] first")
    assert second.startswith("[100%] second")
    assert "samples/s" in first
    assert second.endswith("0:00 left")
    progress = WorkProgress(quiet=True)
    with progress.over(1):
        progress.advance(1)
        progress.end("first")
        progress.warn("old.npz is left out")
    assert capsys.readouterr().err == "warning: old.npz is left out\n"
    progress = WorkProgress()
    screen = io.StringIO()
    progress._console = Console(file=screen, force_terminal=True, width=100)
    with progress.over(200):
        progress.begin("first")
        progress.advance(100)
        assert progress._bar is not None
        progress._bar.refresh()
        progress.end("first")
    assert "100/200 samples" in screen.getvalue()
    assert progress._bar is None
    assert capsys.readouterr().err == ""
