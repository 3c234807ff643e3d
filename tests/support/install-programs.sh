#!/usr/bin/env bash
# Installs the programs that the tests run beside Warmwatch: Debian's prometheus, with promtool; its
# alertmanager, with amtool; systemd, for systemd-analyze; chromium; zsh and fish. And axe-core, which looks at
# the page.
set -euo pipefail
axe="$(dirname "$0")/../../.cache/axe-core"
if [ ! -e "$axe/axe.min.js" ]; then
    if ! command -v npm >/dev/null; then
        echo "The tests of the page need axe-core: install npm, or put axe.min.js into .cache/axe-core." >&2
        exit 1
    fi
    mkdir -p "$axe"
    (cd "$axe" && npm pack --silent axe-core@4.14.1 >/dev/null && tar xzf axe-core-*.tgz --strip-components=1 package/axe.min.js)
fi
if command -v prometheus >/dev/null && command -v promtool >/dev/null &&
    command -v amtool >/dev/null && command -v systemd-analyze >/dev/null &&
    command -v chromium >/dev/null && command -v zsh >/dev/null && command -v fish >/dev/null; then exit 0; fi
if ! command -v apt-get >/dev/null; then
    echo "The tests need prometheus, promtool, amtool, systemd-analyze, chromium, zsh and fish on the PATH; install them and run again." >&2
    exit 1
fi
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends \
    chromium fish fonts-dejavu-core prometheus prometheus-alertmanager systemd zsh
