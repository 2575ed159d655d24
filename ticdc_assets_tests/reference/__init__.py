"""The references that tests compare the pipeline with: in plain Python, in memory, one by one."""
