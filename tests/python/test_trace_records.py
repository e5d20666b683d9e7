"""Damage of a trace: found wherever it is, told with its place, and what is before it is kept."""

import gzip
import random
import tracemalloc

import numpy as np
import pytest
from traced_run import traced_run

from tvm_dtr.cli import main
from tvm_dtr.errors import UsageError
from tvm_dtr.trace import Kind, read_events
from tvm_dtr.trace.analysis import Analysis
from tvm_dtr.trace.format import encode_header
from tvm_dtr.trace.records import RECORD, Blocks, checksum

SIZE = RECORD.itemsize


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return traced_run(tmp_path_factory.getbasetemp())[0]


@pytest.fixture(scope="module")
def whole(path):
    return path.read_bytes()


@pytest.fixture(scope="module")
def start(whole):
    return 16 + int.from_bytes(whole[12:16], "little")


def changed(data, at, bit):
    data = bytearray(data)
    data[at] ^= 1 << bit
    return bytes(data)


def test_what_was_written_has_no_damage(whole, start):
    blocks = Blocks(whole[start:])
    assert blocks.damaged_at is None and "end" in blocks.notes[-1]
    assert not np.isin(blocks.records["kind"], (Kind.NOTE, Kind.CHECK)).any()
    checks = np.frombuffer(whole[start:], RECORD, (len(whole) - start) // SIZE)["kind"]
    assert np.count_nonzero(checks == Kind.CHECK) >= 3  # one a step at least


def test_any_changed_bit_is_found_and_what_is_before_its_block_is_kept(whole, start):
    body = whole[start:]
    good = Blocks(body).records
    draw = random.Random(0)
    for at in [0, 4, 15, len(body) - 1, *(draw.randrange(len(body)) for _ in range(60))]:
        blocks = Blocks(changed(body, at, draw.randrange(8)))
        assert blocks.damaged_at is not None, at
        assert blocks.damaged_at <= at
        kept = blocks.records
        assert kept.tobytes() == good[: len(kept)].tobytes()


@pytest.mark.parametrize("bit", range(64))
def test_the_checksum_sees_every_bit_of_a_word(bit):
    zeros, word = bytes(4 * SIZE), bytearray(4 * SIZE)
    word[8 * 3 + bit // 8] = 1 << bit % 8
    assert checksum(zeros) != checksum(bytes(word))
    assert checksum(zeros) >> 8 != checksum(bytes(word)) >> 8  # what a note keeps


def test_a_file_that_is_cut_off_is_not_called_damaged(whole, start):
    body = whole[start:]
    draw = random.Random(1)
    counts = []
    for size in sorted(draw.randrange(len(body)) for _ in range(40)):
        blocks = Blocks(body[:size])
        assert blocks.damaged_at is None
        counts.append(len(blocks.records))
    assert counts == sorted(counts) and counts[-1] > counts[0]


@pytest.mark.parametrize(("kind", "number"), [(0, 0), (200, 0), (Kind.EVICT, 1), (Kind.STORAGE, 7)])
def test_a_tail_without_a_check_ends_at_what_cannot_be(kind, number):
    tail = np.zeros(3, RECORD)
    tail["kind"] = Kind.STORAGE, kind, Kind.STEP
    tail["id"] = 0, number, 0
    blocks = Blocks(tail.tobytes())
    assert (len(blocks.records), blocks.damaged_at) == (1, SIZE)


def test_every_changed_header_is_refused(whole, start, tmp_path):
    copy = tmp_path / "copy.dtrace"
    draw = random.Random(2)
    for at in [*range(16), *(draw.randrange(16, start) for _ in range(30))]:
        copy.write_bytes(changed(whole, at, draw.randrange(8)))
        with pytest.raises(UsageError, match=r"copy\.dtrace' (is|has a damaged header)"):
            read_events(copy)
    copy.write_bytes(encode_header({})[:-1])
    with pytest.raises(UsageError, match="damaged header"):
        read_events(copy)


def test_a_header_that_says_it_is_huge_takes_no_memory(whole, tmp_path):
    copy = tmp_path / "copy.dtrace"
    copy.write_bytes(whole[:12] + b"\xff" * 4 + whole[16:])
    tracemalloc.start()
    with pytest.raises(UsageError, match="damaged header"):
        read_events(copy)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 16 * len(whole) + (8 << 20)


def test_commands_say_where_the_damage_is_and_show_the_rest(whole, start, tmp_path, capsys):
    copy, page = tmp_path / "copy.dtrace", tmp_path / "page.html"
    at = start + (len(whole) - start) // 2
    copy.write_bytes(changed(whole, at, 3))
    events = read_events(copy)
    assert not events.complete and f"damaged at byte {start}" not in (events.damage or "")
    assert main(["report", str(copy), "-o", str(page)]) == 0
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and f"the {len(events)} records before it are used" in told
    assert events.damage in told and events.damage in page.read_text(encoding="utf-8")
    assert Analysis(events).steps[0].failed is None


def test_damaged_compression_is_told(whole, tmp_path):
    packed = gzip.compress(whole)
    copy = tmp_path / "copy.dtrace.gz"
    copy.write_bytes(changed(packed, len(packed) - 6, 0))  # its checksum
    events = read_events(copy)
    assert "compressed data cannot be read further" in events.damage and not events.complete
    assert len(events) == len(Blocks(whole[16 + int.from_bytes(whole[12:16], "little") :]).records)
