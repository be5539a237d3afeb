#!/bin/sh
# Takes out of an installation what nothing at run time needs: headers, libraries' own tests, and the installer that
# Flower would call before a run if it were not told otherwise.
set -eu
packages=$(echo "$1"/lib/python3*/site-packages)
rm -rf "$packages/torch/include" "$packages/torch/share" "$packages/torch/test" \
    "$1/bin/uv" "$1/bin/uvx" "$1/bin/torchrun" "$1/bin/torchfrtrace"
find "$packages" -type d -name tests -prune -exec rm -rf {} +
