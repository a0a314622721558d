"""Builds the compiled parts of the wheel: the library that a training process loads, the `vramline` binary, and the library that
`vramline run --driver-trace` preloads.

One wheel holds them, so that their versions always match. The binary writes its manual pages and shell completions.

Hatchling runs this file. `VRAMLINE_BUILD` selects the build: `local` (the default) compiles quickly, `optimized` optimises for speed
at run time, and `dist` does the same for the old C library that a release supports.
"""

import json
import os
import pathlib
import subprocess
import sysconfig
import tempfile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The library uses only Python's stable ABI, so one wheel works with this version and every later one.
PYTHON = "cp310-abi3"
LIBRARY = "_vramline.abi3.so"
PRELOADED = "libvramline_driver.so"
COMPLETIONS = {
    "bash": "share/bash-completion/completions/vramline",
    "zsh": "share/zsh/site-functions/_vramline",
    "fish": "share/fish/vendor_completions.d/vramline.fish",
}


class Compiled(BuildHookInterface):
    """Adds library, binary, manual pages and completions to a wheel."""

    def initialize(self, version, build_data):
        root = pathlib.Path(self.root)
        platform, artifacts = compile_workspace(root)
        binary = artifacts["vramline"]
        self._folder = tempfile.TemporaryDirectory(prefix="vramline-wheel-")
        build_data["pure_python"] = False
        build_data["tag"] = f"{PYTHON}-{platform}"
        build_data["shared_scripts"][str(binary)] = "vramline"
        build_data["shared_data"] |= shared_data(binary, pathlib.Path(self._folder.name))
        if version == "editable":
            # Python imports the source files, and looks for the library next to them.
            replace(artifacts["_vramline"], root / "python" / "vramline" / LIBRARY)
            replace(artifacts["vramline_driver"], root / "python" / "vramline" / PRELOADED)
        else:
            build_data["force_include"][str(artifacts["_vramline"])] = f"vramline/{LIBRARY}"
            build_data["force_include"][str(artifacts["vramline_driver"])] = f"vramline/{PRELOADED}"

    def finalize(self, version, build_data, artifact_path):
        self._folder.cleanup()


def compile_workspace(root):
    """Compiles libraries and binary. Returns the platform of the wheel, and the files by the name of their target.

    One command compiles library and binary: with two commands, cargo would compile shared dependencies twice, with different features. The
    library that is preloaded shares nothing and has a profile of its own, which does without the standard library.
    """
    here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    build, target, profile, platform = "build", [], "dist", here
    match os.environ.get("VRAMLINE_BUILD", "local"):
        case "local":
            profile = "release"
        case "optimized":
            pass
        case "dist":
            # Zig links against the symbols of an old glibc, independent of the installed one.
            build, target = "zigbuild", ["--target", "x86_64-unknown-linux-gnu.2.17"]
            platform = "manylinux_2_17_x86_64"
        case other:
            raise SystemExit(f"error: VRAMLINE_BUILD is {other!r}\nhint: use local, optimized or dist")
    both = compiled(root, [build, "--profile", profile, *target, "-p", "vramline-cli", "-p", "vramline-py"])
    return platform, both | compiled(root, [build, "--profile", "interposer", *target, "-p", "vramline-driver"])


def compiled(root, words):
    """Runs cargo. Returns the files that it made, by the name of their target."""
    command = ["cargo", *words, "--locked", "--message-format=json-render-diagnostics"]
    try:
        done = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise SystemExit("error: cargo was not found\nhint: install Rust, or install a released wheel of vramline") from None
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    made = [message for message in messages if message["reason"] == "compiler-artifact"]
    return {
        message["target"]["name"]: pathlib.Path(message["executable"] or message["filenames"][0])
        for message in made
        if {"bin", "cdylib"} & set(message["target"]["kind"])
    }


def shared_data(binary, folder):
    """Writes manual pages and completions with the binary. Returns where each file belongs in an environment."""
    subprocess.run([binary, "man", folder], check=True)
    placed = {str(page): f"share/man/man1/{page.name}" for page in folder.glob("*.1")}
    for shell, place in COMPLETIONS.items():
        script = folder / shell
        script.write_bytes(subprocess.run([binary, "completions", shell], check=True, stdout=subprocess.PIPE).stdout)
        placed[str(script)] = place
    return placed


def replace(source, target):
    """Copies a file atomically: a process that has loaded the old one keeps it."""
    new = target.with_suffix(".new")
    new.write_bytes(source.read_bytes())
    os.replace(new, target)
