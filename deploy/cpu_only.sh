#!/bin/sh
# Ends the build of a CPU image whose libraries came with those for CUDA, as torch does from the usual index: gigabytes
# that no machine without a card has a use for.
set -eu
installed=$("$1/bin/pip" list --format=freeze)
found=$(echo "$installed" | grep -i '^nvidia[-_]' | paste -sd ' ' -)
if [ -n "$found" ]; then
    echo "Expected libraries for processors only, as VARIANT=cpu asks for, found $found: give PyTorch's index of CPU" \
        "builds in PIP_OPTIONS, or wheels of such a build by --build-context wheels=FOLDER, or build VARIANT=cuda." >&2
    exit 1
fi
