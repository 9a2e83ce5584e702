# torchbolt/__main__.py
"""python -m torchbolt: the command line, cli/main.py."""

import sys

from torchbolt.cli.main import main

sys.exit(main())
