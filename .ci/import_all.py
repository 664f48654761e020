"""Import every module of the installed package and compare it with the checkout given as argument."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import merchantbench_gym


def modules(folder: Path, name: str) -> set[str]:
    """Return the dotted names of the modules below a folder."""
    files = (path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py"))
    return {".".join((name, *parts)).removesuffix(".__init__") for parts in files}


def main() -> None:
    """Exit with a message if a module is missing, comes from the checkout or does not import."""
    checkout = Path(sys.argv[1]).resolve()
    installed = Path(merchantbench_gym.__path__[0]).resolve()
    if installed.is_relative_to(checkout):
        sys.exit(f"{installed} is in the checkout; an installed copy is to be checked")
    package = "merchantbench_gym"
    wanted = modules(checkout / package, package)
    for part in ("wrappers", "baselines"):
        wanted |= modules(checkout / part, f"{package}.{part}")
    found = modules(installed, package)
    if found != wanted:
        sys.exit(f"missing: {sorted(wanted - found)}, too many: {sorted(found - wanted)}")
    for name in sorted(found):
        importlib.import_module(name)
    for preset in sorted((checkout / package / "scenarios").glob("*.toml")):
        merchantbench_gym.load_scenario(preset.stem)
    print(f"{len(found)} modules import from {package} {merchantbench_gym.__version__}")


if __name__ == "__main__":
    main()
