"""`python -m collapse_laws` is the same program as `collapse-laws`."""

from collapse_laws.cli import main

raise SystemExit(main())
