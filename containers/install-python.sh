#!/bin/sh
# Link the file $1 to a Python of at least 3.11. Install one first if the image has none.
set -eu

link=$1

find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        program=$(command -v "$name") || continue
        if "$program" -I -c 'import ssl, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$program"
            return 0
        fi
    done
    return 1
}

install_python() {
    if command -v apt-get >/dev/null; then
        apt-get update
        DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
            ca-certificates python3
        rm -rf /var/lib/apt/lists/*
    elif command -v apk >/dev/null; then
        apk add --no-cache ca-certificates python3
    elif command -v dnf >/dev/null; then
        dnf install --assumeyes ca-certificates python3.11
        dnf clean all
    elif command -v microdnf >/dev/null; then
        microdnf install --assumeyes ca-certificates python3.11
        microdnf clean all
    else
        echo "The image has no Python 3.11 and no package manager: install Python first" >&2
        exit 1
    fi
}

if ! python=$(find_python); then
    install_python
    python=$(find_python) || {
        echo "The image's Python is older than 3.11: choose a newer base, or install one" >&2
        exit 1
    }
fi
mkdir -p "$(dirname "$link")"
ln -sf "$python" "$link"
