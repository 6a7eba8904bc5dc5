"""The labels of Loki's senders that name the sending service."""

from typing import Final

# In the order in which Loki searches for the name.
SERVICE_LABELS: Final = (
    "service_name service app application app_name name app_kubernetes_io_name container container_name"
    " k8s_container_name component workload job k8s_job_name"
).split()
