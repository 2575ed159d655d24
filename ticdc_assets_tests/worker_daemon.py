"""The program that Spark forks its Python workers from, with what they need imported already.

Spark ends workers that had nothing to do for a minute, so a run of tests starts many, and each
would import Arrow, numba and our own modules anew: more CPU than most tests ask of it. Programs
that tests start, and the workers of clusters, import for themselves.
"""

from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
