"""Where a lake is: a folder of this machine, or a URI of an object store or of HDFS.

`stores` knows how a URI becomes what Arrow, delta-rs and Hadoop are told; `paths` has the path that
stands for a URI, and what is done with paths of either kind.
"""
