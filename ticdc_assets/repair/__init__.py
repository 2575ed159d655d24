"""What is done to a whole lake besides syncs: verify, rebuild, days, retention, maintenance."""
