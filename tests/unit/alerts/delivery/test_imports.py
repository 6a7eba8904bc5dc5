"""Lazy loading of the modules that deliver alerts."""

import subprocess
import sys


def test_the_service_does_not_import_the_delivery_of_alerts() -> None:
    code = "import sys, cordwood.app.service; print([name for name in sys.modules if 'alerts.delivery' in name or name == 'smtplib'])"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout.strip() == "[]"
