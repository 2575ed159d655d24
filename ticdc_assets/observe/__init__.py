"""How the lake is doing: one status, verdicts, series, metrics, alerts and the report."""
