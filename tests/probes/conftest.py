"""Makes the planted contrasts importable."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))  # for planted_contrasts
