"""tests/fuzz/campaign.py: how long each target has run, over calls; what fails begins anew."""

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace

FUZZ = Path(__file__).parents[1] / "fuzz"
sys.path.insert(0, str(FUZZ))

import campaign  # noqa: E402
from targets import TARGETS  # noqa: E402


def options(folder, **changes):
    given = {"state": folder, "cpp": None, "random": False, "seconds": 60, "turn": 25}
    given |= {"stop_after": None, "only": None, **changes}
    return argparse.Namespace(**given)


def stand_in(lines, fails=()):
    """Instead of a target: a process that prints ``lines``; targets of ``fails`` end badly."""

    def command(name, folder, seconds, options):
        status = 77 if name in fails else 0
        (folder / "corpus").mkdir(exist_ok=True)
        (folder / "corpus" / str(len(list((folder / "corpus").iterdir())))).touch()
        return [sys.executable, "-Sc", f"print({lines!r}); raise SystemExit({status})"]

    return command


def test_every_target_is_in_the_campaign():
    assert sorted(campaign.PYTHON) == sorted(TARGETS)
    assert {path.stem for path in FUZZ.glob("fuzz_*.cc")} == {f"fuzz_{n}" for n in campaign.CPP}


def test_what_was_done_adds_up_over_calls(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "command", stand_in("Done 7 runs in 25 second(s)"))
    looks = iter(range(0, 10**6, 15))  # every look at the clock is 15 s later
    clock = SimpleNamespace(monotonic=lambda: next(looks))
    monkeypatch.setattr(campaign, "time", clock)
    turns = iter(range(0, 10**6, 20))  # and every turn takes 20 s of the processor
    monkeypatch.setattr(campaign, "_children_seconds", lambda: next(turns))
    path = tmp_path / "results.json"
    given = options(tmp_path, only="log,onnx", stop_after=60)
    results = campaign.load(path)
    assert campaign.campaign(given, results)
    first = campaign.load(path)
    assert first == results and 0 < first["log"].seconds < 60
    given.stop_after = None
    assert campaign.campaign(given, campaign.load(path))
    done = campaign.load(path)
    for name in ("log", "onnx"):
        assert done[name].seconds == 60 and done[name].inputs == 3 * 7 and done[name].kept == 3
    assert done["graph"].seconds == 0
    assert "| `log` | 60 of 60 | 21 | 3 |" in campaign.table(done, 60)


def test_a_target_that_fails_begins_anew(tmp_path, monkeypatch, capsys):
    path = tmp_path / "results.json"
    before = campaign.load(path)
    before["log"].seconds = 40
    campaign.save(path, before)
    monkeypatch.setattr(campaign, "command", stand_in("log: 5 inputs, 1 accepted", fails=("log",)))
    assert not campaign.campaign(options(tmp_path, only="log"), campaign.load(path))
    assert campaign.load(path)["log"] == campaign.Progress(failures=1)
    assert "log ended with status 77" in capsys.readouterr().out
