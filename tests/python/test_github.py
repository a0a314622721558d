"""The files of .github: they are YAML, name what exists, and the action's steps do what they say. GitHub itself is not here."""

import os
import re
import shutil
import subprocess

import pytest
import yaml
from conftest import REPOSITORY

ACTION = REPOSITORY / ".github/actions/vramline-diff/action.yml"
SYSTEMS = REPOSITORY / ".github/workflows/systems.yml"
CNN = "tf221_cpu_cnn_from_start.xplane.pb"
KERAS = "tf221_cpu_keras.vram"


@pytest.fixture(scope="module")
def action():
    return yaml.safe_load(ACTION.read_text(encoding="utf-8"))


def test_the_action_is_composite_and_whole(action):
    assert action["runs"]["using"] == "composite"
    steps = action["runs"]["steps"]
    assert all(step["shell"] == "bash" for step in steps)
    text = ACTION.read_text(encoding="utf-8")
    # What comes from outside reaches a script as a variable, never as a part of the script.
    assert not any("${{" in step["run"] for step in steps)
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(action["inputs"])
    written = set(re.findall(r"echo \"(\w+)=", steps[0]["run"]))
    assert set(re.findall(r"steps\.compare\.outputs\.(\w+)", text)) <= written


def test_its_options_exist(action, binary):
    told = subprocess.run([binary, "diff", "--help"], capture_output=True, text=True, check=True).stdout
    used = re.search(r"vramline diff .*", action["runs"]["steps"][0]["run"])[0]
    options = [*re.findall(r"--[a-z-]+", used), "--fail-over"]
    assert options.count("--repeats") == 2 and "--markdown" in options
    assert [option for option in options if not re.search(rf"^ +{option}\b", told, re.MULTILINE)] == []


@pytest.mark.parametrize(
    ("before", "after", "fail_over", "code", "gate", "title"),
    [
        (CNN, KERAS, "2%", "3", "fail", "### GPU memory: the gate fails"),
        (KERAS, "tf221_cpu_ker*.vram", "2%", "0", "pass", "### GPU memory: the gate passes"),
        (CNN, KERAS, "", "0", "none", "### GPU memory"),
        (KERAS, "torch/late.pickle.gz", "2%", "4", "unknown", "### GPU memory: the gate cannot decide"),
    ],
)
def test_its_steps_compare_and_end_as_the_gate_says(action, binary, fixtures, tmp_path, before, after, fail_over, code, gate, title):
    first, *_, last = action["runs"]["steps"]
    done, output = step(first["run"], binary, fixtures, tmp_path, BEFORE=before, AFTER=after, FAIL_OVER=fail_over)
    assert done.returncode == 0, done.stderr
    assert (output["gate"], output["code"]) == (gate, code)
    summary = (tmp_path / "summary").read_text(encoding="utf-8")
    assert summary.startswith(title + "\n\n")
    with open(output["markdown"], encoding="utf-8") as markdown:
        assert markdown.read() == summary
    assert step(last["run"], binary, fixtures, tmp_path, CODE=output["code"])[0].returncode == int(code)


def test_a_file_that_cannot_be_read_ends_it(action, binary, fixtures, tmp_path):
    done, output = step(action["runs"]["steps"][0]["run"], binary, fixtures, tmp_path, BEFORE="nowhere.vram", AFTER=KERAS, FAIL_OVER="2%")
    assert done.returncode == 1 and output == {} and "nowhere.vram" in done.stderr


def step(script, binary, folder, scratch, **variables):
    """Runs a step as GitHub's runners do. Returns how it ended, and what it gave to later steps."""
    tools = scratch / "bin"
    tools.mkdir(exist_ok=True)
    if not (tools / "vramline").exists():
        (tools / "vramline").symlink_to(binary.resolve())
    output, file = scratch / "output", scratch / "step.sh"
    output.write_text("", encoding="utf-8")
    file.write_text(script, encoding="utf-8")
    environment = os.environ | variables | {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "RUNNER_TEMP": str(scratch),
        "GITHUB_OUTPUT": str(output),
        "GITHUB_STEP_SUMMARY": str(scratch / "summary"),
    }
    command = [shutil.which("bash"), "--noprofile", "--norc", "-eo", "pipefail", str(file)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False)
    return done, dict(line.split("=", 1) for line in output.read_text(encoding="utf-8").splitlines())


def test_the_systems_that_are_checked(action):
    workflow = yaml.safe_load(SYSTEMS.read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    assert [system.split("-")[0] for system in job["strategy"]["matrix"]["system"]] == ["macos", "windows"]
    commands = "\n".join(step.get("run", "") for step in job["steps"])
    # Cargo refuses to run the tests of the manual together with others.
    assert [line for line in commands.splitlines() if "--doc" in line] == ["cargo test --release --locked -p vramline --doc"]
    examples = re.findall(r"--example (\w+)", commands)
    assert examples and all((REPOSITORY / f"crates/vramline/examples/{name}.rs").is_file() for name in examples)
    files = re.findall(r"fixtures/\S+", commands)
    assert files and all((REPOSITORY / name).is_file() for name in files)
    # What the compiler says without Linux.
    refusal = re.search(r'grep -q "(.+)"', commands)[1]
    assert refusal in (REPOSITORY / "crates/vramline/src/lib.rs").read_text(encoding="utf-8")


def test_workflows_are_yaml_and_trust_nobody():
    files = sorted((REPOSITORY / ".github").rglob("*.yml"))
    assert len(files) >= 3
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert isinstance(yaml.safe_load(text), dict)
        # That event runs with the repository's secrets on code of strangers.
        assert "pull_request_target" not in text
        if "workflows" in file.parts:
            assert yaml.safe_load(text)["permissions"] == {"contents": "read"}
