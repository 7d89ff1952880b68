#!/usr/bin/env bash
# Second step of the GPU environment: flash-attn imports the installed torch while it is built.
set -euo pipefail
pip install --no-build-isolation flash-attn==2.8.3
