"""Where a lake is: a folder of this machine, or a URI of an object store or of HDFS."""
