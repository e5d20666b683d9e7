import numpy as np
import pytest

from tvm_dtr.budget import Budget, format_bytes, parse_budget
from tvm_dtr.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512MiB", 512 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("2g", 2 * 2**30),
        ("1048576", 2**20),
        (" 64 KiB ", 65536),
        (4096, 4096),
        (np.int64(4096), 4096),
        (np.uint8(7), 7),
        (2**63 - 1, 2**63 - 1),
        ("9007199254740993", 9007199254740993),
    ],
)
def test_sizes(text, expected):
    assert parse_budget(text) == Budget(bytes=expected)
    assert parse_budget(text).resolve(7) == expected


def test_percentages_are_of_the_unbudgeted_peak():
    assert parse_budget("40%").resolve(1000) == 400
    assert parse_budget("12.5%").resolve(1000) == 125


@pytest.mark.parametrize("text", [None, "none", "NONE"])
def test_no_budget(text):
    assert parse_budget(text).unlimited
    assert parse_budget(text).resolve(1000) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "much",
        "\u0661\u0662",
        "\u0664\u0660%",
        np.float32(2),
        np.bool_(True),
        "-5MiB",
        "40 percent",
        "5ib",
        "1e9",
        "%",
        "0",
        0,
        -1,
        "0%",
        1.5,
        True,
    ],
)
def test_what_does_not_parse_is_named(text):
    with pytest.raises(UsageError, match="512MiB") as error:
        parse_budget(text)
    assert "\n" not in str(error.value)


def repr_start(value):
    return value[:20] if isinstance(value, str) else hex(value)[:20]


@pytest.mark.parametrize(
    "text",
    [
        2**63,
        16**5000,
        np.uint64(2**63),
        "9223372036854775808",
        "9000000TiB",
        "9" * 5000,
        "8388608T",
    ],
    ids=repr_start,
)
def test_more_than_an_address_space_is_refused(text):
    with pytest.raises(UsageError, match=r"over 2\^63 - 1 bytes") as error:
        parse_budget(text)
    assert len(str(error.value)) < 200 and "\n" not in str(error.value)


def test_a_share_of_a_peak_stays_below_the_largest_budget():
    with pytest.raises(UsageError, match="over 2"):
        parse_budget("9" * 400 + "%")


@pytest.mark.parametrize("text", ["-5%", "-5MiB", "-5", "-.5%", "0%"])
def test_what_is_not_positive_is_said_to_be_that(text):
    with pytest.raises(UsageError, match=f"memory budget '{text}' is not positive"):
        parse_budget(text)


def test_more_than_the_peak_is_warned_of():
    with pytest.warns(UserWarning, match=r"200% is above the unbudgeted peak of 512 B"):
        assert parse_budget("200%").resolve(512) == 1024


def test_format():
    assert format_bytes(512) == "512 B"
    assert format_bytes(612 * 2**20) == "612.0 MiB"
