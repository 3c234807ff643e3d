#!/usr/bin/env bash
# Hold the pinned dependencies against the known vulnerabilities: `audit.sh BIN [--where-possible]`,
# BIN the folder of an environment's programs. Exit 1 where one is known to be vulnerable, 2 where
# nothing was audited: with `--where-possible` that is said, and is 0.
set -uo pipefail
bin=$1 where_possible=${2:-}
mkdir -p .cache

audited() {
    "$bin/pip" install -q --group audit && "$bin/pip-audit" \
        --requirement requirements-dev.txt --disable-pip --strict --timeout 10 --progress-spinner off
}

audited > .cache/audit 2>&1
status=$?
cat .cache/audit >&2
if [ $status -eq 0 ]; then
    exit 0
elif grep -qE '^Found [0-9]+ known vulnerabilit' .cache/audit; then
    exit 1
fi
echo "Nothing was audited: no database of vulnerabilities answers from here (see above)." \
    "Run make audit where one can be reached." >&2
[ "$where_possible" = --where-possible ] || exit 2
