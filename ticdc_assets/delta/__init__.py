"""Delta tables: commits, files, control tables, locks; and the lake of a changefeed."""
