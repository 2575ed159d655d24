"""Work on a whole lake besides syncs: verify, rebuild, days, retention, maintenance."""
