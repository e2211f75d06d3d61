"""`scripts/setup` against a pretend Python, which writes down what it was asked to do."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SYSTEM_TOOLS = ("cat", "chmod", "cksum", "cp", "mkdir", "mv", "rm", "sh")

# Answers the questions the script asks, and makes an environment out of a copy of itself.
PRETEND_PYTHON = """#!/bin/sh
echo "$@" >>"$CALLS"
case "$*" in
    *"version_info < (3, 11)"*) exit {too_old} ;;
    *"import ensurepip, venv"*) exit {no_venv} ;;
    *"version_info[:2]"*) echo {version} ;;
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip "*) exit {pip_fails} ;;
esac
"""


class Tree:
    """A tree to set up, on a machine whose PATH holds only what the test puts there."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "a tree with spaces"
        self.path = folder / "bin"
        self.calls_file = folder / "calls"
        (self.place / "scripts").mkdir(parents=True)
        self.path.mkdir()
        shutil.copy(ROOT / "scripts/setup", self.place / "scripts/setup")
        (self.place / "pyproject.toml").write_text("[project]\n")
        (self.place / "constraints.txt").write_text("a==1\n")
        for tool in SYSTEM_TOOLS:
            found = shutil.which(tool)
            assert found is not None
            (self.path / tool).symlink_to(found)

    def add_program(self, name: str, text: str = "#!/bin/sh\n") -> None:
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    def add_python(
        self,
        name: str,
        version: str = "3.12",
        *,
        too_old: bool = False,
        no_venv: bool = False,
        pip_fails: bool = False,
    ) -> None:
        text = PRETEND_PYTHON.format(
            version=version,
            too_old=int(too_old),
            no_venv=int(no_venv),
            pip_fails=int(pip_fails),
        )
        self.add_program(name, text)

    def set_up(self, python: str = "") -> subprocess.CompletedProcess[str]:
        self.calls_file.write_text("")
        return subprocess.run(
            ["/bin/sh", "scripts/setup"],
            cwd=self.place,
            env={"PATH": str(self.path), "CALLS": str(self.calls_file), "PYTHON": python},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def was_made(self) -> bool:
        return "-m venv .venv" in self.calls_file.read_text()

    @property
    def ready(self) -> Path:
        return self.place / ".venv" / "ready"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_fresh_tree_is_set_up_from_the_pins(tree: Tree) -> None:
    tree.add_python("python3.11", "3.11")
    run = tree.set_up()
    assert run.returncode == 0, run.stderr
    calls = tree.calls_file.read_text()
    assert "--constraint constraints.txt --no-build-isolation --editable .[all,dev]" in calls
    assert tree.ready.exists()


def test_a_whole_environment_is_left_alone(tree: Tree) -> None:
    tree.add_python("python3")
    tree.set_up()
    again = tree.set_up()
    assert again.returncode == 0
    assert again.stderr == ""
    assert not tree.was_made


@pytest.mark.parametrize("file", ["pyproject.toml", "constraints.txt"])
def test_new_pins_rebuild_the_environment(file: str, tree: Tree) -> None:
    tree.add_python("python3")
    tree.set_up()
    (tree.place / file).write_text("different\n")
    assert tree.set_up().returncode == 0
    assert tree.was_made


def test_interrupted_set_up_is_repeated_from_scratch(tree: Tree) -> None:
    tree.add_python("python3")
    half_made = tree.place / ".venv" / "lib" / "half-a-package"
    half_made.mkdir(parents=True)
    assert tree.set_up().returncode == 0
    assert not half_made.exists()
    assert tree.ready.exists()


def test_environment_without_its_python_is_rebuilt(tree: Tree) -> None:
    tree.add_python("python3")
    tree.set_up()
    (tree.place / ".venv/bin/python").unlink()
    assert tree.set_up().returncode == 0
    assert tree.was_made


def test_moved_tree_is_rebuilt(tree: Tree) -> None:
    tree.add_python("python3")
    tree.set_up()
    tree.place = tree.place.rename(tree.place.with_name("elsewhere"))
    assert tree.set_up().returncode == 0
    assert tree.was_made


def test_another_python_rebuilds_the_environment(tree: Tree) -> None:
    tree.add_python("python3.13", "3.13")
    tree.add_python("python3.12", "3.12")
    tree.set_up()
    assert tree.set_up(python="python3.12").returncode == 0
    assert tree.was_made
    tree.set_up()
    assert not tree.was_made, "without PYTHON whatever is there will do"


def test_a_failed_install_does_not_count_as_ready(tree: Tree) -> None:
    tree.add_python("python3", pip_fails=True)
    assert tree.set_up().returncode != 0
    assert not tree.ready.exists()


def test_the_newest_python_that_answers_is_chosen(tree: Tree) -> None:
    tree.add_program("python3.13", "#!/bin/sh\nexit 127\n")
    tree.add_python("python3.12", "3.12", no_venv=True)
    tree.add_python("python3.11", "3.11")
    tree.add_python("python3", "3.9", too_old=True)
    run = tree.set_up()
    assert run.returncode == 0
    assert "Python 3.11" in run.stderr


def test_missing_recent_python_is_reported(tree: Tree) -> None:
    tree.add_python("python3", "3.9", too_old=True)
    run = tree.set_up()
    assert run.returncode == 2
    assert "3.11 or newer" in run.stderr
    assert "PYTHON=" in run.stderr
    assert not (tree.place / ".venv").exists()


def test_python_that_is_too_old_is_refused_even_with_everything_ready(tree: Tree) -> None:
    tree.add_python("python3")
    tree.set_up()
    tree.add_python("python3.9", "3.9", too_old=True)
    run = tree.set_up(python="python3.9")
    assert run.returncode == 2
    assert "PYTHON=python3.9" in run.stderr
    assert tree.ready.exists()


def test_a_python_without_venv_gives_the_command_that_brings_it(tree: Tree) -> None:
    tree.add_python("python3.12", "3.12", no_venv=True)
    tree.add_program("apt-get")
    run = tree.set_up()
    assert run.returncode == 2
    assert "apt-get install python3.12-venv" in run.stderr


def test_outside_the_tree_it_refuses(tree: Tree) -> None:
    tree.add_python("python3")
    (tree.place / "constraints.txt").unlink()
    run = tree.set_up()
    assert run.returncode == 2
    assert "constraints.txt" in run.stderr


def test_the_real_script_is_executable() -> None:
    assert os.access(ROOT / "scripts/setup", os.X_OK)
