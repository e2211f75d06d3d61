"""Traces are read row by row: each is a job, a problem with its line, or dropped with a reason."""

import bz2
import gc
import gzip
import json
import lzma
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.errors import ConfigError
from themis.sim.traces import Trace, TraceJob, read_trace
from themis.sim.traces.text_lines import CHUNK, MAX_LINE
from themis.sim.traces.trace import KEPT_PROBLEMS

HEADER = "submit_s,duration_s,num_gpus,owner,app\n"
SACCT_HEADER = "JobID|User|Submit|Start|End|State|AllocTRES\n"
DAY = "2024-03-01T"


def read(folder: Path, text: str | bytes, kind: str = "auto") -> Trace:
    path = folder / "trace"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_trace(path, kind)


def philly_job(**changes: object) -> dict[str, object]:
    attempt = {
        "start_time": "2017-10-09 07:02:51",
        "end_time": "2017-10-09 07:10:00",
        "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}],
    }
    job: dict[str, object] = {
        "status": "Pass",
        "vc": "6214e9",
        "jobid": "application_1_2",
        "attempts": [attempt],
        "submitted_time": "2017-10-09 07:02:44",
        "user": "ab12cd",
    }
    return job | changes


def sacct_row(**changes: str) -> str:
    row = {
        "id": "17",
        "user": "ann",
        "submit": f"{DAY}10:00:00",
        "start": f"{DAY}10:05:00",
        "end": f"{DAY}10:06:40",
        "state": "COMPLETED",
        "tres": "billing=8,cpu=8,gres/gpu=4,gres/gpu:v100=4,mem=32G,node=1",
    }
    return "|".join((row | changes).values()) + "\n"


def accounted(trace: Trace) -> int:
    counts = (*trace.problem_counts.values(), *trace.dropped.values())
    return len(trace.jobs) + sum(counts)


# Each format by itself


def test_a_plain_row_becomes_a_job_with_its_line(tmp_path: Path) -> None:
    trace = read(tmp_path, HEADER + "\n10,20.5,4,ann,sweep\n")
    assert trace.format == "csv"
    assert trace.jobs == (TraceJob(3, 10.0, 20.5, 4, "ann", "sweep"),)
    assert trace.origin == 0.0


def test_columns_may_stand_in_any_order_among_others(tmp_path: Path) -> None:
    text = "Num_GPUs;comment; DURATION_S ;submit_s\n2;hello;30;5\n"
    assert read(tmp_path, text).jobs == (TraceJob(2, 5.0, 30.0, 2, "unknown"),)


def test_the_philly_table_has_virtual_clusters_as_owners(tmp_path: Path) -> None:
    text = "job_id,submit_s,duration_s,num_gpus,vc,burst_id\n0,0,2240194,8,7f04ca,0\n"
    trace = read(tmp_path, text)
    assert trace.format == "philly-csv"
    assert trace.jobs == (TraceJob(2, 0.0, 2240194.0, 8, "7f04ca"),)


def test_the_philly_table_of_apps_names_them(tmp_path: Path) -> None:
    text = (
        "app,app_submit_s,job,job_submit_s,num_gpus,duration_s,vc,philly_job_id\n"
        "3,22137,1,22140,1,9815,6c71a0,30261\n"
    )
    trace = read(tmp_path, text)
    assert trace.format == "philly-apps"
    assert trace.jobs == (TraceJob(2, 22140.0, 9815.0, 1, "6c71a0", "3"),)


def test_sacct_gpu_listed_with_and_without_type_counts_once(tmp_path: Path) -> None:
    trace = read(tmp_path, SACCT_HEADER + sacct_row())
    (job,) = trace.jobs
    assert (trace.format, job.gpus, job.duration, job.owner) == ("sacct", 4, 100.0, "ann")
    assert job.submit == trace.origin


def test_sacct_adds_up_types_where_there_is_no_total(tmp_path: Path) -> None:
    row = sacct_row(tres="cpu=8,gres/gpu:v100=4,gres/gpu:a100=2,gres/gpumem=80G")
    assert read(tmp_path, SACCT_HEADER + row).jobs[0].gpus == 6


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"end": "Unknown"}, "still running", id="no end"),
        pytest.param({"start": "Unknown", "end": "Unknown"}, "never started", id="pending"),
        pytest.param({"start": "None"}, "never started", id="cancelled in the queue"),
        pytest.param({"tres": "cpu=8,node=1"}, "no GPUs", id="a job without GPUs"),
        pytest.param({"tres": ""}, "no GPUs", id="no resources"),
        pytest.param({"end": f"{DAY}10:05:00"}, "zero duration", id="over at once"),
        pytest.param({"id": "17.batch"}, "a step of a job", id="sacct without -X"),
    ],
)
def test_sacct_rows_that_are_no_work_are_dropped(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    trace = read(tmp_path, SACCT_HEADER + sacct_row(**changes))
    assert trace.dropped == {reason: 1}
    assert trace.clean
    assert not trace.jobs


def test_canceller_of_a_job_is_not_part_of_its_status(tmp_path: Path) -> None:
    trace = read(tmp_path, SACCT_HEADER + sacct_row(state="CANCELLED by 1001"))
    assert trace.jobs[0].status == "CANCELLED"


def test_the_philly_log_counts_the_gpu_time_of_all_attempts(tmp_path: Path) -> None:
    attempts = [
        {
            "start_time": "2017-10-09 08:00:00",
            "end_time": "2017-10-09 08:01:00",
            "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
        },
        {
            "start_time": "2017-10-09 09:00:00",
            "end_time": "2017-10-09 09:02:00",
            "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
        },
        {"start_time": None, "end_time": None, "detail": []},
    ]
    trace = read(tmp_path, json.dumps([philly_job(attempts=attempts)]))
    (job,) = trace.jobs
    assert trace.format == "philly-json"
    assert (job.gpus, job.duration * job.gpus) == (2, 60 * 1 + 120 * 2)
    assert (job.owner, job.status) == ("ab12cd", "Pass")


def test_the_philly_log_names_the_line_on_which_a_job_begins(tmp_path: Path) -> None:
    jobs = [philly_job(jobid=f"a{n}") for n in range(4)]
    jobs[2]["submitted_time"] = "soon"
    text = json.dumps(jobs, indent=1)
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines, start=1) if line == " {"]
    trace = read(tmp_path, text)
    assert [job.line for job in trace.jobs] == [begins[0], begins[1], begins[3]]
    assert [(p.line, str(p)) for p in trace.problems] == [
        (begins[2], "submitted_time is not a time: 'soon'")
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"attempts": []}, "never started", id="no attempt"),
        pytest.param(
            {"attempts": [{"start_time": "None", "end_time": "None", "detail": []}]},
            "never started",
            id="an attempt that never began",
        ),
        pytest.param(
            {"attempts": [{"start_time": "2017-10-09 08:00:00", "end_time": None, "detail": []}]},
            "still running",
            id="no end",
        ),
        pytest.param(
            {
                "attempts": [
                    {
                        "start_time": "2017-10-09 08:00:00",
                        "end_time": "2017-10-09 08:00:10",
                        "detail": [],
                    }
                ]
            },
            "no GPUs",
            id="no machine",
        ),
    ],
)
def test_philly_jobs_that_are_no_work_are_dropped(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    assert read(tmp_path, json.dumps([philly_job(**changes)])).dropped == {reason: 1}


def test_a_philly_log_of_many_chunks_is_read_whole(tmp_path: Path) -> None:
    jobs = [philly_job(jobid=f"a{n}", user="u" * 500) for n in range(2000)]
    trace = read(tmp_path, json.dumps(jobs))
    assert len(trace.jobs) == 2000
    assert trace.clean


def test_json_lines_are_a_philly_log_too(tmp_path: Path) -> None:
    text = "".join(json.dumps(philly_job(jobid=f"a{n}")) + "\r\n" for n in range(3))
    assert [job.line for job in read(tmp_path, text).jobs] == [1, 2, 3]


def test_a_philly_log_that_is_cut_off_says_where(tmp_path: Path) -> None:
    text = json.dumps([philly_job(jobid=f"a{n}") for n in range(3)], indent=1)
    trace = read(tmp_path, text[:-100])
    assert len(trace.jobs) == 2
    assert trace.problem_counts == {"not JSON: nothing from here on was read": 1}
    assert trace.problems[0].line > trace.jobs[1].line


# Bad rows


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param("1,x,1,a,", "duration_s is not a number", id="a word"),
        pytest.param("1,,1,a,", "duration_s is missing", id="nothing"),
        pytest.param("1,-5,1,a,", "duration_s is negative", id="negative"),
        pytest.param("1,nan,1,a,", "duration_s is not a number", id="nan"),
        pytest.param("1,inf,1,a,", "duration_s is above 1e+10", id="inf"),
        pytest.param("1,1e308,1,a,", "duration_s is above 1e+10", id="1e308"),
        pytest.param(f"1,1{'0' * 400},1,a,", "duration_s is above 1e+10", id="10^400"),
        pytest.param("1,1_000,1,a,", "duration_s is not a number", id="underscore"),
        pytest.param("1,True,1,a,", "duration_s is not a number", id="bool"),
        pytest.param("-1,5,1,a,", "submit_s is negative", id="before the start"),
        pytest.param("1,5,1.5,a,", "num_gpus is not a whole number", id="half a GPU"),
        pytest.param("1,5,100001,a,", "num_gpus is above 100000", id="many GPUs"),
        pytest.param("1,5,-1,a,", "num_gpus is negative", id="negative GPUs"),
        pytest.param("1,5", "too few fields", id="short"),
        pytest.param("1,5,1,a,b,c", "too many fields", id="long"),
        pytest.param('1,5,1,"a,', "the quotes are wrong", id="an open quote"),
        pytest.param(
            "1,5,1," + "a" * 70_000, "the line is longer than 65536 characters", id="huge"
        ),
        pytest.param(HEADER.strip(), "the header again", id="files joined"),
    ],
)
def test_a_bad_row_has_its_line_and_reason_and_spoils_no_other(
    tmp_path: Path, row: str, reason: str
) -> None:
    trace = read(tmp_path, f"{HEADER}0,1,1,a,\n{row}\n2,1,1,a,\n")
    assert [(p.line, p.reason) for p in trace.problems] == [(3, reason)]
    assert [job.line for job in trace.jobs] == [2, 4]


def test_sacct_rows_that_end_before_they_start_are_bad(tmp_path: Path) -> None:
    trace = read(tmp_path, SACCT_HEADER + sacct_row(end=f"{DAY}09:00:00"))
    assert [str(p) for p in trace.problems] == ["End is before the start: 'by 3900 s'"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"submitted_time": None}, "submitted_time is missing", id="no time"),
        pytest.param({"submitted_time": True}, "submitted_time is not a time", id="a bool"),
        pytest.param({"submitted_time": 10**400}, "submitted_time is not a time", id="10^400"),
        pytest.param({"attempts": None}, "attempts is not a list", id="null attempts"),
        pytest.param({"attempts": [1]}, "an attempt is not an object", id="a number"),
        pytest.param({"user": ["x"]}, "user is not a text", id="a list for a user"),
        pytest.param({"user": "\ud800"}, "user is not UTF-8", id="half a character"),
    ],
)
def test_a_philly_job_of_another_shape_is_bad(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    jobs = [philly_job(jobid="x", **changes), philly_job(jobid="y")]
    trace = read(tmp_path, json.dumps(jobs))
    assert trace.problem_counts == {reason: 1}
    assert len(trace.jobs) == 1


def test_a_job_that_comes_twice_counts_once(tmp_path: Path) -> None:
    trace = read(tmp_path, SACCT_HEADER + sacct_row() + sacct_row())
    assert len(trace.jobs) == 1
    assert [(p.line, p.reason) for p in trace.problems] == [(3, "the job was on an earlier line")]


def test_any_mix_of_line_ends_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    text = "\ufeff" + HEADER.strip() + "\r\n0,1,1,a,\r1,1,1,a,\n\r\n2,1,1,a,"
    trace = read(tmp_path, text)
    assert [(job.line, job.submit) for job in trace.jobs] == [(2, 0.0), (3, 1.0), (5, 2.0)]
    assert trace.clean


def test_a_line_of_exactly_the_longest_length_is_read(tmp_path: Path) -> None:
    row = "0,1,1,"
    fits, over = (row + "a" * (MAX_LINE - len(row) + more) for more in (0, 1))
    trace = read(tmp_path, f"{HEADER[:-5]}\n{fits}\n{over}\n{fits}")
    assert [job.line for job in trace.jobs] == [2, 4]
    assert [problem.line for problem in trace.problems] == [3]


def test_a_giant_line_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(HEADER + "1" * 8_000_000 + "\n0,1,1,a,\n")
    tracemalloc.start()
    try:
        trace = read_trace(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [problem.line for problem in trace.problems] == [2]
    assert [job.line for job in trace.jobs] == [3]
    assert peak < 2_000_000


def test_lines_that_straddle_what_is_read_at_once_stay_whole(tmp_path: Path) -> None:
    rows = [f"{n},1,1,{'é' if n % 3 else 'e'}-{n}," for n in range(2 * CHUNK // 12)]
    trace = read(tmp_path, HEADER + "\r\n".join(rows))
    assert trace.clean
    assert [job.line for job in trace.jobs] == list(range(2, len(rows) + 2))
    assert [job.owner[2:] for job in trace.jobs] == [str(n) for n in range(len(rows))]


def test_empty_trailing_fields_are_kept_in_any_script(tmp_path: Path) -> None:
    text = "owner\tsubmit_s\tduration_s\tnum_gpus\tnote\n\u00e9\t0\t1\t1\t\n"
    assert read(tmp_path, text).jobs[0].owner == "\u00e9"


def test_a_zero_byte_spoils_only_its_own_number(tmp_path: Path) -> None:
    trace = read(tmp_path, HEADER + "0,1\0,1,a,\r\0\0\r1,1,1,a,\r")
    assert [(p.line, p.reason) for p in trace.problems] == [
        (2, "duration_s is not a number"),
        (3, "too few fields"),
    ]
    assert [job.line for job in trace.jobs] == [4]


def test_jobs_may_overlap_leave_gaps_and_come_in_any_order(tmp_path: Path) -> None:
    trace = read(tmp_path, HEADER + "9000000,5,8,a,\n0,1000,8,a,\n0,1000,8,a,\n")
    assert trace.clean
    assert [job.submit for job in trace.jobs] == [9000000.0, 0.0, 0.0]


def test_a_named_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(HEADER + "0,1,1,a,\n",))
    writer.start()
    trace = read_trace(pipe)
    writer.join()
    assert len(trace.jobs) == 1


def test_a_line_that_is_not_utf8_is_bad_by_itself(tmp_path: Path) -> None:
    trace = read(tmp_path, HEADER.encode() + b"0,1,1,\xff,\n1,1,1,\xc3\xa9,\n")
    assert trace.problem_counts == {"the line is not UTF-8": 1}
    assert trace.jobs[0].owner == "é"


def test_quotes_may_hold_commas_and_an_owner_may_be_empty(tmp_path: Path) -> None:
    trace = read(tmp_path, HEADER + '0,1,"1","a, b",\n0,1,1, ,\n')
    assert [job.owner for job in trace.jobs] == ["a, b", "unknown"]


def test_problems_are_counted_beyond_those_kept(tmp_path: Path) -> None:
    count = KEPT_PROBLEMS + 7
    trace = read(tmp_path, HEADER + "x,1,1,a,\n" * count)
    assert len(trace.problems) == KEPT_PROBLEMS
    assert trace.problem_counts == {"submit_s is not a number": count}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("\n\r\n", id="blank"),
        pytest.param("duration_s,num_gpus\n1,2\n", id="a column missing"),
        pytest.param("1,2,3,ann\n", id="no header"),
        pytest.param("submit_s,submit_s,duration_s,num_gpus\n1,1,1,1\n", id="a column twice"),
        pytest.param("submit_s,duration_s,num_gpus\n1,1,1\n".encode("utf-16"), id="UTF-16"),
        pytest.param(b"\x7fELF\0\0\0\0", id="a program"),
        pytest.param("JobID|Submit\n1|2\n", id="sacct without its columns"),
    ],
)
def test_a_file_in_no_known_format_is_refused_with_its_name(
    tmp_path: Path, text: str | bytes
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    assert str(tmp_path / "trace") in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(gzip.compress(HEADER.encode()), "gzip.*gunzip", id="gzip"),
        pytest.param(bz2.compress(HEADER.encode()), "bzip2", id="bzip2"),
        pytest.param(lzma.compress(HEADER.encode()), "xz", id="xz"),
        pytest.param(b"PK\x03\x04" + HEADER.encode(), "zip archive or a spreadsheet", id="zip"),
        pytest.param(HEADER.encode("utf-16"), "UTF-16", id="UTF-16"),
        pytest.param(HEADER.encode("utf-32"), "UTF-32", id="UTF-32"),
        pytest.param(HEADER.encode("utf-16-le"), "UTF-16.*iconv", id="UTF-16 without a mark"),
        pytest.param(b"\0" * 100, "a binary file.*a text file", id="zeros"),
        pytest.param(
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\0\0\0\2\0", "a binary file", id="a picture"
        ),
        pytest.param(b"x" * 70_000, ":1: .*longer than 65536", id="one giant line"),
        pytest.param(b"\nsubmit_s,gr\xf6\xdfe\n0,1\n", ":2: .*not UTF-8", id="Latin 1 header"),
        pytest.param(
            b'{"name":"x","themis_workload":1}\n', "a workload file.*--workload", id="a workload"
        ),
    ],
)
def test_file_given_by_mistake_is_named_for_its_kind(
    tmp_path: Path, data: bytes, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, data)


def test_a_header_without_rows_is_a_trace_without_jobs(tmp_path: Path) -> None:
    for text in (HEADER, HEADER.strip()):
        trace = read(tmp_path, text)
        assert (trace.rows, trace.jobs, trace.clean) == (0, (), True)


def test_reading_leaves_the_garbage_collector_as_it_was(tmp_path: Path) -> None:
    assert gc.isenabled()
    read(tmp_path, HEADER)
    assert gc.isenabled()
    with pytest.raises(ConfigError):
        read(tmp_path, "")
    assert gc.isenabled()


def test_an_unknown_format_and_an_unreadable_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean 'sacct'"):
        read(tmp_path, HEADER, "sact")
    with pytest.raises(ConfigError, match="readable file"):
        read_trace(tmp_path)


def test_progress_is_reported_up_to_the_size(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(HEADER + "0,1,1,a,\n" * 40_000)
    seen: list[tuple[int, int]] = []
    read_trace(path, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == (size, size)


# Garbage

FIELD = st.one_of(
    st.text(max_size=12),
    st.floats().map(str),
    st.integers().map(str),
    st.sampled_from(["", '"', "None", "Unknown", "1e400", "gres/gpu=4", "gres/gpu=x", "\0"]),
    st.datetimes().map(str),
    st.datetimes().map(lambda when: when.isoformat() + "+14:00"),
)
HEADERS = st.sampled_from([HEADER, SACCT_HEADER, "vc,submit_s,duration_s,num_gpus\n"])


@given(header=HEADERS, rows=st.lists(st.lists(FIELD, max_size=8), max_size=8))
def test_rows_of_garbage_are_all_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, header: str, rows: list[list[str]]
) -> None:
    mark = "|" if header == SACCT_HEADER else ","
    text = header + "\n".join(mark.join(row) for row in rows)
    trace = read(tmp_path_factory.mktemp("garbage"), text.encode("utf-8", "surrogatepass"))
    assert trace.rows == accounted(trace)


@given(noise=st.binary(max_size=200))
def test_bytes_of_garbage_never_crash(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes
) -> None:
    folder = tmp_path_factory.mktemp("garbage")
    for start in (HEADER.encode(), SACCT_HEADER.encode(), b"[", b"[{", b""):
        try:
            trace = read(folder, start + noise)
        except ConfigError:
            continue
        assert trace.rows == accounted(trace)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@given(changes=st.lists(st.dictionaries(st.sampled_from(sorted(philly_job())), JSON), max_size=4))
def test_philly_jobs_of_any_shape_are_all_accounted_for(
    tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, object]]
) -> None:
    text = json.dumps([philly_job(**each) for each in changes])
    trace = read(tmp_path_factory.mktemp("garbage"), text)
    assert trace.rows == accounted(trace) == len(changes)
