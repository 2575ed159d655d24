"""Where a lake is: a folder of this machine, or a URI of an object store or of HDFS.

`stores` turns a URI into the settings of Arrow, delta-rs and Hadoop; `paths` has the path of a URI,
and the actions on paths of either kind.
"""
