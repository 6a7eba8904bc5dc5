"""The memory that a process may use: the lowest of the limits of the machine and of its cgroups."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from cordwood.settings.settings import default_memory_ceiling_bytes, read_allowed_memory_bytes

MIB = 2**20
MACHINE_FILES = {"proc/meminfo": "MemTotal:        8388608 kB\nMemFree: 1 kB\n"}


def make_machine(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in (MACHINE_FILES | dict(files)).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "mib"),
    [
        ({}, 8192),
        ({"sys/fs/cgroup/memory.max": "max\n"}, 8192),
        ({"sys/fs/cgroup/memory.max": f"{512 * MIB}\n"}, 512),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{300 * MIB}\n"}, 300),
        ({"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 8192),
        (
            {
                "proc/self/cgroup": "0::/system.slice/cordwood.service\n",
                "sys/fs/cgroup/system.slice/cordwood.service/memory.max": f"{700 * MIB}\n",
            },
            700,
        ),
        (
            {
                "proc/self/cgroup": "0::/system.slice/cordwood.service\n",
                "sys/fs/cgroup/system.slice/cordwood.service/memory.max": "max\n",
                "sys/fs/cgroup/system.slice/memory.max": f"{600 * MIB}\n",
            },
            600,
        ),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/a\n4:memory:/jobs/one\n0::/\n",
                "sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes": f"{400 * MIB}\n",
            },
            400,
        ),
        ({"proc/self/cgroup": "nonsense\n0::/../../etc\n"}, 8192),
    ],
)
def test_the_lowest_limit_applies(tmp_path: Path, files: Mapping[str, str], mib: int) -> None:
    assert read_allowed_memory_bytes(make_machine(tmp_path, files)) == mib * MIB


def test_another_process_has_the_limits_of_its_own_cgroup(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/mine\n",
        "proc/77/cgroup": "0::/theirs\n",
        "sys/fs/cgroup/mine/memory.max": f"{300 * MIB}\n",
        "sys/fs/cgroup/theirs/memory.max": f"{500 * MIB}\n",
    }
    assert read_allowed_memory_bytes(make_machine(tmp_path, files), pid=77) == 500 * MIB


def test_without_any_limit_the_default_is_256_mb(tmp_path: Path) -> None:
    assert read_allowed_memory_bytes(tmp_path) is None
    assert default_memory_ceiling_bytes(None) == 256 * 10**6


def test_the_default_is_a_quarter_and_at_least_256_mb() -> None:
    assert default_memory_ceiling_bytes(8 * 10**9) == 2 * 10**9
    assert default_memory_ceiling_bytes(512 * MIB) == 256 * 10**6
