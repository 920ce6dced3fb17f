"""Brokers on this machine, images, dashboards and the runbook."""
