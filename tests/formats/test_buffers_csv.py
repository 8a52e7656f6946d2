"""Buffers as CSV: what is understood, what is refused and how it is said, and that writing keeps what was given."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.formats.buffers_csv import BuffersError, BufferTable, parse_table, read_bytes, write_table
from memsched.graph.packing import Block, BlockPart
from tests.failures import fails

DATA = Path(__file__).parent.parent / "data" / "packing"


def table_of(text: str, alignment: int = 1) -> BufferTable:
    return parse_table(text.encode(), "in.csv", alignment=alignment)


def refused(text: str | bytes, code: str, *about: str, alignment: int = 1) -> None:
    data = text.encode() if isinstance(text, str) else text
    limit = csv.field_size_limit()
    with fails(code, "'in.csv'", *about, kind=BuffersError) as caught:
        parse_table(data, "in.csv", alignment=alignment)
    assert csv.field_size_limit() == limit
    assert "\n" not in str(caught.value)
    assert str(caught.value).count("'in.csv'") == 1


def test_the_four_required_columns_in_any_order() -> None:
    table = table_of("size,id,upper,lower\n4,a,5,0\n\n8,b,9,5\n")
    assert table.ids == ("a", "b")
    assert table.lines == (2, 4)
    assert table.blocks == (Block.whole(4, 0, 5), Block.whole(8, 5, 9))
    assert table.lifetimes == ((0, 5), (5, 9))
    assert write_table(table, [0, 16]) == "size,id,upper,lower,offset\n4,a,5,0,0\n8,b,9,5,16\n"


@pytest.mark.parametrize("name", ["id", "buffer", "buffer_id", " ID "])
@pytest.mark.parametrize("lower", ["lower", "begin", "start"])
def test_other_names_of_columns_are_kept(name: str, lower: str) -> None:
    table = table_of(f"{name},{lower},upper,size\nx,1,3,2\n")
    assert table.blocks == (Block.whole(2, 1, 3),)
    assert write_table(table, [7]) == f"{name},{lower},upper,size,offset\nx,1,3,2,7\n"


def test_end_is_the_last_moment_and_so_are_the_ends_of_gaps() -> None:
    table = table_of("buffer,start,end,size,gaps\nx,1,9,6,3-4 6-7@2:4\n")
    assert table.lifetimes == ((1, 10),)
    assert table.blocks[0].parts == (
        BlockPart(1, 3, 0, 6),
        BlockPart(5, 6, 0, 6),
        BlockPart(6, 8, 2, 4),
        BlockPart(8, 10, 0, 6),
    )
    assert write_table(table, [0]) == "buffer,start,end,size,gaps,offset\nx,1,9,6,3-4 6-7@2:4,0\n"


def test_optional_columns() -> None:
    table = table_of(
        "id,lower,upper,size,alignment,hint,gaps,offset,note\n"
        'a,0,9,8,4,-1,2-3 5-6@0:4,,"first, and best"\n'
        "b,-3,0,8,,16,-2--1,32,\n"
        "c,0,1,0,,,0-1,,\n",
        alignment=2,
    )
    assert table.blocks[0] == Block(
        8, (BlockPart(0, 2, 0, 8), BlockPart(3, 5, 0, 8), BlockPart(5, 6, 0, 4), BlockPart(6, 9, 0, 8)), alignment=4
    )
    assert table.blocks[1] == Block(
        8, (BlockPart(-3, -2, 0, 8), BlockPart(-1, 0, 0, 8)), alignment=2, offset=32, hint=16
    )
    assert table.blocks[2] == Block(0, (), alignment=2)
    assert table.carried == ("note",)
    assert write_table(table, [0, 32, 4]).splitlines()[1:] == [
        'a,0,9,8,4,-1,2-3 5-6@0:4,0,"first, and best"',
        "b,-3,0,8,,16,-2--1,32,",
        "c,0,1,0,,,0-1,4,",
    ]


def test_line_ends_mark_and_quotes_of_other_programs() -> None:
    text = '\ufeff"id","lower","upper","size"\r\n"a ""x""",0,5,4\r\n\r\n007, 5 ,+9,8'
    table = table_of(text)
    assert table.ids == ('a "x"', "007")
    assert table.blocks == (Block.whole(4, 0, 5), Block.whole(8, 5, 9))
    assert write_table(table, [0, 0]) == ('\ufeffid,lower,upper,size,offset\r\n"a ""x""",0,5,4,0\r\n007, 5 ,+9,8,0\r\n')


def test_a_field_over_two_lines_does_not_shift_the_count() -> None:
    refused('id,lower,upper,size\n"a\nb",0,1,1\nc,0,1,-1\n', "buffer-below-zero", "line 4, column 'size'")


def test_what_was_quoted_is_quoted_again_where_it_must_be() -> None:
    text = 'id,lower,upper,size,note\n"a\rb",0,1,1,"x,""y"""\n"c",0,1,1,"z"\n'
    written = write_table(table_of(text), [0, 1])
    assert written == 'id,lower,upper,size,note,offset\n"a\rb",0,1,1,"x,""y""",0\nc,0,1,1,z,1\n'
    assert table_of(written).ids == ("a\rb", "c")


def test_a_long_list_of_gaps() -> None:
    gaps = " ".join(f"{2 * i}-{2 * i + 1}" for i in range(40_000))
    table = table_of(f"id,lower,upper,size,gaps\na,0,100000,8,{gaps}\n")
    assert len(table.blocks[0].parts) == 40_000
    assert csv.field_size_limit() == 131_072


def test_no_buffers_are_buffers() -> None:
    assert write_table(table_of("id,lower,upper,size\n"), []) == "id,lower,upper,size,offset\n"


def test_the_file_in_the_tests_data() -> None:
    table = parse_table(read_bytes(DATA / "twelve.csv"), "twelve.csv")
    assert len(table.blocks) == 12
    assert max(block.alignment for block in table.blocks) == 4


GOOD = "id,lower,upper,size\na,0,5,4\n"
ALL = "id,lower,upper,size,alignment,hint,gaps,offset\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["no-buffers", "id, lower, upper, size"]),
        ("\n  \n\n", ["no-buffers"]),
        ("id,lower,size\na,0,4\n", ["no-such-column", "line 1", "'upper'"]),
        ("a;b;c\n", ["no-such-column", "line 1", "'id', 'lower', 'upper', 'size'", "a;b;c"]),
        ("id,lower,begin,upper,size\n", ["column-twice", "line 1", "'lower' and 'begin'"]),
        ("id,lower,upper,end,size\n", ["column-twice", "line 1", "'upper' and 'end'"]),
        ("id,buffer,lower,upper,size\n", ["column-twice", "'id' and 'buffer'"]),
        ("id,lower,upper,size,Offset,offset\n", ["column-twice", "'Offset' and 'offset'"]),
        (GOOD + "b,0,5\n", ["field-count", "line 3", "3 fields", "4"]),
        (GOOD + "b,0,5,4,\n", ["field-count", "line 3", "5 fields"]),
        (GOOD + "a,0,5,4\n", ["buffer-twice", "line 3, column 'id'", "'a'", "line 2"]),
        (GOOD + ",0,5,4\n", ["empty-field", "line 3, column 'id'"]),
        (GOOD + "b,0,5,-4\n", ["buffer-below-zero", "line 3, column 'size'"]),
        (GOOD + "b,0,5,4.0\n", ["not-a-number", "line 3, column 'size'", "'4.0'"]),
        (GOOD + "b,0,5,1_000\n", ["not-a-number", "column 'size'"]),
        (GOOD + "b,0,5,٣\n", ["not-a-number", "column 'size'"]),
        (GOOD + "b,0,5,\n", ["empty-field", "column 'size'"]),
        (GOOD + "b,x,5,4\n", ["not-a-number", "line 3, column 'lower'", "'x'"]),
        (GOOD + "b,5,5,4\n", ["empty-lifetime", "line 3, column 'upper'", "[5, 5)"]),
        (GOOD + "b,6,5,4\n", ["empty-lifetime", "line 3, column 'upper'", "[6, 5)"]),
        ("buffer_id,start,end,size\nb,6,5,4\n", ["empty-lifetime", "line 2, column 'end'"]),
        (GOOD + f"b,0,5,{2**62 + 1}\n", ["number-too-large", "line 3, column 'size'", "2**62"]),
        (GOOD + f"b,{-(2**70)},5,1\n", ["number-too-large", "line 3, column 'lower'", "2**62"]),
        (GOOD + "b,0,5," + "9" * 5000 + "\n", ["number-too-large", "line 3, column 'size'", "2**62"]),
        (GOOD + f"b,0,5,{2**62}\n", ["number-too-large", "2**62"]),
        (ALL + "a,0,5,4,0,,,\n", ["bad-alignment", "line 2, column 'alignment'"]),
        (ALL + "a,0,5,4,-8,,,\n", ["bad-alignment", "column 'alignment'"]),
        (ALL + "a,0,5,4,x,,,\n", ["not-a-number", "column 'alignment'"]),
        (ALL + "a,0,5,4,,-2,,\n", ["bad-address", "column 'hint'"]),
        (ALL + "a,0,5,4,,,1,\n", ["bad-gap", "column 'gaps'"]),
        (ALL + "a,0,5,4,,,1-2@3,\n", ["bad-gap", "column 'gaps'"]),
        (ALL + "a,0,5,4,,,3-2,\n", ["empty-gap", "column 'gaps'", "'3-2'"]),
        (ALL + "a,0,5,4,,,3-3,\n", ["empty-gap", "column 'gaps'"]),
        (ALL + "a,0,5,4,,,3-6,\n", ["gap-outside", "column 'gaps'", "[0, 5)"]),
        (ALL + "a,2,5,4,,,1-3,\n", ["gap-outside", "column 'gaps'", "[2, 5)"]),
        (ALL + "a,0,5,4,,,2-4 1-3,\n", ["gaps-overlap", "column 'gaps'", "'1-3' and '2-4'"]),
        (ALL + "a,0,5,4,,,1-2@0:5,\n", ["gap-outside", "column 'gaps'", "4 bytes"]),
        (ALL + "a,0,5,4,,,1-2@-1:4,\n", ["gap-outside", "column 'gaps'", "4 bytes"]),
        (ALL + "a,0,5,4,,,1-2@3:2,\n", ["empty-gap", "column 'gaps'"]),
        (ALL + "a,0,5,4,,,,-1\n", ["bad-address", "column 'offset'"]),
        (ALL + "a,0,5,4,8,,,12\n", ["offset-misaligned", "column 'offset'", "12", "8"]),
        (ALL + "a,0,5,4,,,,4\nb,5,9,4,,,,4\nc,4,6,4,,,,7\n", ["offsets-overlap", "line 4, column 'offset'", "'c'"]),
        ('id,lower,upper,size\n"a,0,5,4\n', ["not-csv", "line 2"]),
        ('id,lower,upper,size\n"a"x,0,5,4\n', ["not-csv", "line 2"]),
        (b"id,lower,upper,size\na,0,5,\xff\n", ["buffers-not-text", "line 2"]),
        (b"id,lower,upper,size\na,0,5,4\n\0\0", ["buffers-not-text", "line 3"]),
        (bytes(range(256)) * 4, ["buffers-not-text"]),
        ("id,lower,upper,size\n".encode("utf-16"), ["buffers-not-text"]),
    ],
)
def test_what_cannot_be_is_refused_with_file_line_and_column(text: str | bytes, expected: list[str]) -> None:
    refused(text, *expected)


def test_given_addresses_may_share_bytes_that_are_not_in_use_together() -> None:
    rows = "a,0,9,8,,,2-4 6-7@0:4,0\nb,2,4,8,,,,0\nc,6,7,4,,,,4\nd,9,12,8,,,,0\n"
    assert len(table_of(ALL + rows).blocks) == 4
    refused(ALL + rows + "e,6,7,1,,,,3\n", "offsets-overlap", "'e'")


def test_the_alignment_that_rows_leave_open_binds_given_addresses() -> None:
    refused(ALL + "a,0,5,4,,,,12\n", "offset-misaligned", "12", "8", alignment=8)
    assert table_of(ALL + "a,0,5,4,4,,,12\n", alignment=8).blocks[0].alignment == 4


def test_a_given_address_above_the_capacity() -> None:
    table = table_of(GOOD.replace("size", "size,offset").replace(",4\n", ",4,61\n"))
    table.check_capacity(65)
    with fails("above-capacity", "line 2, column 'offset'", "65", "64"):
        table.check_capacity(64)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path, code in (
        (tmp_path / "no.csv", "no-such-buffers"),
        (tmp_path, "buffers-is-folder"),
        ("nul\0.csv", "buffers-unreadable"),
    ):
        with fails(code, str(path)):
            read_bytes(path)


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[Block]]:
    """A file with all columns, shuffled, and the blocks that it states."""
    count = draw(st.integers(0, 6))
    order = draw(st.permutations(["id", "lower", "upper", "size", "alignment", "gaps", "hint", "remark"]))
    names = draw(
        st.lists(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), min_size=count, max_size=count
        )
    )
    stream = io.StringIO(newline="")
    # With "\n" as the end of a line, csv.writer leaves a bare "\r" unquoted, which its reader refuses.
    newline, all_quoted = draw(st.sampled_from([("\n", True), ("\r\n", True), ("\r\n", False)]))
    writer = csv.writer(stream, lineterminator=newline, quoting=csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL)
    writer.writerow(order)
    blocks = []
    for index in range(count):
        lower, length = draw(st.integers(-5, 5)), draw(st.integers(1, 6))
        size, alignment = draw(st.integers(0, 9)), draw(st.sampled_from([1, 2, 3, 8]))
        cuts = sorted(draw(st.sets(st.integers(lower, lower + length), max_size=4)))
        gaps, used = [], dict.fromkeys(range(lower, lower + length), (0, size))
        for begin, end in zip(cuts[::2], cuts[1::2], strict=False):
            low, high = sorted((draw(st.integers(0, size)), draw(st.integers(0, size))))
            gaps.append(f"{begin}-{end}" + (f"@{low}:{high}" if low < high else ""))
            used.update(dict.fromkeys(range(begin, end), (low, high)))
        row = {
            "id": f"{index}{names[index]}",
            "lower": lower,
            "upper": lower + length,
            "size": size,
            "alignment": alignment,
            "gaps": " ".join(draw(st.permutations(gaps))),
            "hint": draw(st.sampled_from(["", "-1", "3"])),
            "remark": names[index],
        }
        writer.writerow([row[column] for column in order])
        parts = tuple(BlockPart(time, time + 1, *window) for time, window in used.items() if window[0] < window[1])
        blocks.append(Block(size, parts, alignment, None, 3 if row["hint"] == "3" else None))
    return stream.getvalue(), blocks


def by_moment(block: Block) -> list[tuple[int, int, int]]:
    return [
        (time, part.low, part.high)
        for part in block.parts
        for time in range(part.begin, part.end)
        if part.low < part.high
    ]


@settings(max_examples=60, deadline=None)
@given(tables())
def test_any_file_is_read_as_it_was_meant_and_written_as_it_was_given(made: tuple[str, list[Block]]) -> None:
    text, blocks = made
    table = table_of(text)
    for block, expected in zip(table.blocks, blocks, strict=True):
        assert by_moment(block) == by_moment(expected)
        assert (block.size, block.alignment, block.hint) == (expected.size, expected.alignment, expected.hint)
    offsets = [8 * index * 3 for index in range(len(blocks))]
    written = write_table(table, offsets)
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert [row[:-1] for row in csv.reader(io.StringIO(written, newline=""))] == rows
    again = parse_table(written.encode(), "again.csv")
    assert [block.offset for block in again.blocks] == offsets
    assert write_table(again, offsets) == written
