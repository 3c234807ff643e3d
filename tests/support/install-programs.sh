#!/usr/bin/env bash
# Installs the programs that the tests run beside Warmwatch: Debian's prometheus, with promtool; its
# alertmanager, with amtool; systemd, for systemd-analyze.
set -euo pipefail
if command -v prometheus >/dev/null && command -v promtool >/dev/null &&
    command -v amtool >/dev/null && command -v systemd-analyze >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null; then
    echo "The tests need prometheus, promtool, amtool and systemd-analyze on the PATH; install them and run again." >&2
    exit 1
fi
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends \
    prometheus prometheus-alertmanager systemd
