"""A service without alerts does not load what sends them."""

import subprocess
import sys


def test_the_service_loads_nothing_that_sends() -> None:
    code = "import sys, cordwood.app.service; print([name for name in sys.modules if 'alerts.delivery' in name or name == 'smtplib'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "[]"
