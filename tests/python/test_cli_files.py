"""Output files appear whole or not at all."""

import json
import os
import stat

import pytest

from tvm_dtr.cli.files import check_outputs, replacing, write_rows
from tvm_dtr.errors import UsageError


def test_the_file_appears_at_the_end_with_usual_permissions(tmp_path):
    target = tmp_path / "table.json"
    with replacing(str(target)) as draft:
        draft.write_text("new")
        assert draft.parent == tmp_path and draft.suffix == ".json"
        assert not target.exists()
    assert target.read_text() == "new"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "table.json"
    target.write_text("old")
    with pytest.raises(KeyboardInterrupt), replacing(str(target)) as draft:
        draft.write_text("half")
        raise KeyboardInterrupt
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["table.json"]


def test_a_link_is_followed(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    with replacing(str(tmp_path / "link")) as draft:
        draft.write_text("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with replacing(str(pipe)) as draft:
            draft.write_text("through")
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_rows_are_an_object_with_rows(tmp_path):
    write_rows(str(tmp_path / "t.json"), [{"loss": 1.5}])
    assert json.loads((tmp_path / "t.json").read_text()) == {"rows": [{"loss": 1.5}]}
    write_rows(None, [{"loss": 1.5}])
    assert os.listdir(tmp_path) == ["t.json"]


def test_bad_outputs_are_refused(tmp_path):
    check_outputs([None, str(tmp_path / "new"), "new"])
    with pytest.raises(UsageError, match="is a directory"):
        check_outputs([str(tmp_path)])
    with pytest.raises(UsageError, match="there is no folder"):
        check_outputs([str(tmp_path / "no" / "file")])


def test_an_output_is_no_input_and_no_other_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("model")
    (tmp_path / "soft").symlink_to("in")
    (tmp_path / "hard").hardlink_to(tmp_path / "in")
    (tmp_path / "dangling").symlink_to("new")
    for name in ("in", "./in", str(tmp_path / "in"), "soft", "hard"):
        with pytest.raises(UsageError, match="is an input of this command"):
            check_outputs(["other", name], inputs=["in"])
    for one, other in [("new", "./new"), ("in", "soft"), ("new", "dangling")]:
        with pytest.raises(UsageError, match="is another output"):
            check_outputs([one, other])
    check_outputs(["/dev/null", "/dev/null"], inputs=["/dev/null"])


def test_a_folder_that_takes_no_file_is_refused():
    with pytest.raises(UsageError, match="'/proc/file': cannot write to the folder '/proc'"):
        check_outputs(["/proc/file"])  # not even root may
    check_outputs(["/dev/null"])
