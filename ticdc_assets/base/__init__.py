"""What has nothing to do with TiCDC: errors, isolation, progress, the machine, compiled loops."""
