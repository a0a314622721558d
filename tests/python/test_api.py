"""`vramline.memory_info`, `watch`, `record` and the like in a program of real TensorFlow."""

from recorded_jobs import DEVICE, MIB, uses

import vramline as package

FIGURES = ("current", "peak", "limit", "pool")


@uses("api")
def test_before_tensorflow_is_used_everything_is_none_with_a_why(job):
    facts = job.facts
    assert facts["imported"] == []
    for moment in ("before import", "before use"):
        assert [facts[moment][name] for name in FIGURES] == [None] * 4
        assert all("no framework has used a device yet" in facts[moment]["why"][name] for name in FIGURES)
        assert facts[moment]["host_resident"] > 0
        assert facts[moment]["why"]["host_resident"] is None
    assert facts["no devices"] == []
    # There is no peak yet.
    assert facts["no reset"] is None
    assert "unknown (no framework has used a device yet" in facts["watched nothing"]


@uses("api")
def test_what_was_asked_before_first_use_does_not_initialise_tensorflow(job):
    """The job goes on to configure logical devices and threads, which TensorFlow refuses once it is initialised."""
    assert job.code == 0, job.err
    assert job.facts["devices"] == [DEVICE]


@uses("api")
def test_memory_info_is_tensorflows(job):
    info, truth = job.facts["info"], job.facts["truth"]
    assert {name: info[name] for name in ("current", "peak")} == truth
    assert (info["device"], info["limit"], info["limit_by"]) == (DEVICE, 2000 * MIB, "environment")
    assert info["pool"] is None
    assert "TensorFlow does not report" in info["why"]["pool"]
    assert job.facts["any"] == DEVICE
    assert job.facts["other"]["why"]["current"] == f"no device GPU:7 in use; devices in use: {DEVICE}"


@uses("api")
def test_reset_peak_resets_the_peak(job):
    assert job.facts["reset"]["peak"] == job.facts["reset"]["current"] < job.facts["truth"]["peak"] + 4 * MIB


@uses("api")
def test_watch_tells_what_a_block_gave_back(job):
    deleted = job.facts["deleted"]
    assert (deleted["change"], deleted["pool"]) == (-4 * MIB, None)
    assert deleted["text"].splitlines()[0] == f"delete x ({DEVICE})"
    assert "given back to the pool: 4,194,304 bytes" in deleted["text"]
    assert "given back to the system: 0 bytes; TensorFlow's pool keeps the memory that it reserved" in deleted["text"]


@uses("api")
def test_recorded_steps_have_their_own_peaks_and_marks_their_moments(job):
    report = job.report_on(job.folder / "work" / "loop.vram")
    first = [step for step in report["steps"] if step["phase"] == "train"]
    assert [(step["step"], step["how"], step["batches"]) for step in first] == [(n, "api", 1) for n in (0, 10, 20)]
    assert [(step["peak_bytes"], step["current_bytes"]) for step in first] == [
        (reading["peak"], reading["current"]) for reading in job.facts["steps"]
    ]
    marks = [mark for mark in report["marks"] if mark["kind"] == "mark"]
    assert [(mark["label"], mark["step"], mark["current_bytes"]) for mark in marks] == [
        ("made", number, current) for number, current in zip((0, 10, 20), job.facts["marks"], strict=True)
    ]


@uses("api")
def test_record_prints_every_so_many_steps(job):
    assert job.code == 0, job.err
    printed = job.out.split("--- printed ---\n")[1].split("--- end ---\n")[0].splitlines()
    assert [line.split(":")[0] for line in printed] == ["step 0, made", "step 0", "step 20, made", "step 20"]


@uses("api")
def test_a_second_recording_of_a_name_goes_on_and_resets_only_if_asked(job):
    assert job.facts["again"] == job.facts["loop"]
    assert job.facts["not reset"] is True
    path = job.folder / "work" / "loop.vram"
    steps = [step for step in job.report_on(path)["steps"] if step["phase"] == "validation"]
    assert [step["step"] for step in steps] == [0, 1]
    assert package.load(path).samples.rows > 0


@uses("api")
def test_a_step_that_fails_is_written_and_its_exception_is_the_programs(job):
    assert job.facts["raised"] == "enough is enough"
    report = job.report_on(job.folder / "work" / "fails.vram")
    assert [step["step"] for step in report["steps"]] == [0]
    assert [mark["label"] for mark in report["marks"]] == ["RuntimeError: enough is enough"]


@uses("api")
def test_a_step_before_first_use_is_recorded_without_figures(job):
    path = job.folder / "work" / "early.vram"
    assert job.facts["early"] == str(path)
    (step,) = job.report_on(path)["steps"]
    assert (step["step"], step["peak_bytes"], step["current_bytes"]) == (5, None, None)
