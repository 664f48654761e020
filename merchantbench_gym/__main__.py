"""The command line, as ``merchantbench`` and as ``python -m merchantbench_gym``."""

import sys


def main() -> None:
    """Load the command line and run it; ends the process with the exit code."""
    try:
        from merchantbench_gym.cli import main as run
    except KeyboardInterrupt:  # loading takes long enough to be interrupted
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
