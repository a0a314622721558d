"""The files of a release, used as a user would who has Python and pip and nothing of ours: `make test-dist`.

`make dist` has made both files before, the wheel from the source archive. Nothing here may find a Rust compiler.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "fixtures"
MOST_BYTES = 10_000_000
# Debian releases that a user may still have, oldest first. Which of them can be fetched depends on the mirror.
SUITES = ["stretch", "buster", "bullseye", "bookworm"]


@pytest.fixture(scope="session")
def version():
    return re.search(r'(?m)^version = "([^"]+)"', (REPOSITORY / "Cargo.toml").read_text(encoding="utf-8"))[1]


@pytest.fixture(scope="session")
def wheel(version):
    path = REPOSITORY / "dist" / f"vramline-{version}-cp310-abi3-manylinux_2_17_x86_64.whl"
    if not path.is_file():
        pytest.fail(f"{path} is not there: make dist", pytrace=False)
    return path


class Environment:
    """A virtual environment, and a path on which nothing else can be found."""

    def __init__(self, folder):
        venv.create(folder / "environment", with_pip=True)
        self.programs = folder / "environment" / "bin"
        self.variables = {
            name: value for name, value in os.environ.items() if not name.startswith(("CARGO", "RUST", "TF_", "VRAMLINE"))
        } | {"PATH": str(self.programs), "HOME": str(folder), "TF_CPP_MIN_LOG_LEVEL": "3"}
        self.folder = folder

    def run(self, program, *arguments):
        command = [self.programs / program, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture(scope="session")
def clean(wheel, tmp_path_factory):
    """An environment with the wheel in it, and TensorFlow beside it."""
    clean = Environment(tmp_path_factory.mktemp("clean"))
    assert shutil.which("cargo", path=clean.variables["PATH"]) is None
    clean.run("pip", "install", "-q", "--no-index", wheel)
    clean.run("pip", "install", "-q", "-r", REPOSITORY / "tests" / "dist" / "framework.txt")
    return clean


def test_the_wheel_is_small_and_holds_everything(wheel):
    assert wheel.stat().st_size <= MOST_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    for needed in (
        "vramline/_vramline.abi3.so",
        "vramline/libvramline_driver.so",
        "vramline/_boot/sitecustomize.py",
        "vramline/_demo/train.py",
        "vramline/py.typed",
        "data/share/man/man1/vramline.1",
        "data/share/man/man1/vramline-report.1",
        "data/share/bash-completion/completions/vramline",
        "data/share/zsh/site-functions/_vramline",
        "data/share/fish/vendor_completions.d/vramline.fish",
        "scripts/vramline",
        "LICENSE-MIT",
        "LICENSE-APACHE",
    ):
        assert [name for name in names if name.endswith(needed)], needed
    # One page for each verb that `vramline help` shows.
    assert sum(name.endswith(".1") for name in names) >= 14


def test_libraries_and_binary_keep_to_the_old_glibc_of_the_tag(wheel, tmp_path):
    program = Path(sys.executable).with_name("auditwheel")
    done = subprocess.run([program, "show", wheel], capture_output=True, text=True, check=True)
    assert "manylinux_2_17_x86_64" in " ".join(done.stdout.split())
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith((".so", "scripts/vramline"))]
        assert len(names) == 3
        for name in names:
            # The versions that the loader asks for. The preloaded library has names of newer ones as text.
            asked = subprocess.run(["readelf", "-V", archive.extract(name, tmp_path)], capture_output=True, text=True, check=True).stdout
            needed = {tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_(2\.[\d.]+)", asked)}
            assert needed and max(needed) <= (2, 17), (name, max(needed))


def test_the_source_archive_holds_what_a_build_needs_and_no_fixtures(version):
    with tarfile.open(REPOSITORY / "dist" / f"vramline-{version}.tar.gz") as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    assert {"Cargo.toml", "Cargo.lock", "pyproject.toml", "python/build/hook.py", "crates/vramline-cli/web/page.js"} <= names
    assert not [name for name in names if name.startswith(("fixtures", "tests", "target")) or name.endswith(".so")]


def test_the_command_has_its_version(clean, version):
    assert clean.run("vramline", "--version").stdout == f"vramline {version}\n"
    code = "import vramline; print(vramline.__version__)"
    assert clean.run("python", "-c", code).stdout == f"{version}\n"


def test_the_demo_trains_and_reports(clean):
    done = clean.run("vramline", "demo")
    assert "TensorFlow" in done.stderr and "parameters" in done.stderr
    report = json.loads(clean.run("vramline", "report", clean.folder / "demo.vram", "--json").stdout)
    assert report["pools"][0]["from_start"] is True and report["pools"][0]["replay"]["exact"] is True


def test_a_log_and_a_trace_are_read(clean):
    failures = json.loads(clean.run("vramline", "oom", "--json", FIXTURES / "tf221_cpu_oom.log").stdout)["failures"]
    assert failures and all(failure["verdict"] for failure in failures)
    report = json.loads(clean.run("vramline", "report", "--json", FIXTURES / "tf221_cpu_cnn_from_start.xplane.pb").stdout)
    assert report["pools"][0]["peak_bytes"] > 0


def test_the_manual_and_completions_are_installed(clean):
    share = clean.programs.parent / "share"
    assert ".TH" in (share / "man/man1/vramline-run.1").read_text(encoding="utf-8")
    assert "vramline" in (share / "bash-completion/completions/vramline").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_calls_of_the_driver_are_recorded(clean, tmp_path):
    """The library in the wheel, under the stub of NVIDIA's driver and from the folder where pip has put it."""
    sources = REPOSITORY / "tests" / "python" / "driver_trace"
    for target, source, *words in (
        ("libcuda.so.1", "libcuda.c", "-shared", "-fPIC", "-Wl,-Bsymbolic", f"-Wl,--version-script,{sources}/libcuda.map"),
        ("libnvidia-ml.so.1", "libnvidia-ml.c", "-shared", "-fPIC"),
        ("caller", "caller.c"),
    ):
        subprocess.run(["cc", "-O1", "-o", tmp_path / target, sources / source, *words, "-ldl", "-lpthread"], check=True)
    (tmp_path / "device").write_bytes(bytes(4096))
    stubs = {"LD_LIBRARY_PATH": str(tmp_path), "STUB_DEVICE": str(tmp_path / "device")}
    command = [clean.programs / "vramline", "run", "--driver-trace", "on", "--no-report", "--no-stand-in", "-o", tmp_path / "x.vram", "--", tmp_path / "caller", "v2"]
    done = subprocess.run(command, env=clean.variables | stubs, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    (file,) = (tmp_path / "x.vram").glob("calls-*.bin")
    assert b"cuMemAlloc" in file.read_bytes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a Debian to run in")
def test_the_binary_runs_in_an_old_debian(wheel, tmp_path, version):
    debootstrap = shutil.which("debootstrap", path=os.environ["PATH"] + ":/usr/sbin") or pytest.skip("debootstrap is not installed")
    told = subprocess.run(["apt-get", "indextargets", "--format", "$(SITE)"], capture_output=True, text=True, check=True).stdout
    mirror = next(line for line in told.split() if line.rstrip("/").endswith("/debian"))
    for suite in SUITES:
        root = tmp_path / suite
        # Only what the binary needs of it: the C library.
        command = [debootstrap, "--variant=minbase", "--include=libc6", suite, root, mirror]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            break
    else:
        pytest.skip("no Debian could be fetched")
    with zipfile.ZipFile(wheel) as archive:
        for ending in ("scripts/vramline", "vramline/libvramline_driver.so"):
            (name,) = [name for name in archive.namelist() if name.endswith(ending)]
            (root / Path(ending).name).write_bytes(archive.read(name))
    (root / "vramline").chmod(0o755)
    shutil.copy(FIXTURES / "tf221_cpu_oom.log", root)
    for arguments, expected in ((["--version"], f"vramline {version}"), (["oom", "/tf221_cpu_oom.log"], "MiB")):
        done = subprocess.run(["chroot", root, "/vramline", *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and expected in done.stdout, done.stderr
    # The loader names a library that it cannot preload.
    done = subprocess.run(["chroot", root, "env", "LD_PRELOAD=/libvramline_driver.so", "true"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    print(f"{suite}: {subprocess.run(['chroot', root, 'ldd', '--version'], capture_output=True, text=True, check=False).stdout[:60]}")
