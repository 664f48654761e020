"""Lists the packages; everything else is in setup.cfg.

setup.cfg can search for packages or map folders, not both, and a list written out by hand
forgets the next subpackage.
"""

from setuptools import find_packages, setup

TOP = "merchantbench_gym"
MAPPED = ("wrappers", "baselines")

setup(
    packages=[
        *find_packages(include=[TOP, f"{TOP}.*"]),
        *(f"{TOP}.{name}" for part in MAPPED for name in find_packages(include=[part, f"{part}.*"])),
    ]
)
