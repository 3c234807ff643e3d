#!/usr/bin/env bash
# Tries the image where no container engine runs: the Dockerfile's own instructions, carried out in
# fresh Debian roots, then its own commands, as its own users, each without capabilities in a read-only
# root, the training in a pid namespace of its own, over one record directory. Needs root, debootstrap,
# and port 10464 to be free.
#
#   docker/try-image.sh WORK     WORK: an empty directory or that of an earlier try; about 5 GB
#   MIRROR: of Debian; this machine's own unless set
#
# What differs from an image: the base is Debian's own Python, not the official image of it, and
# nothing of the container engine itself (networks, volumes, the NVIDIA runtime) takes part.
set -euo pipefail
context=$(cd "$(dirname "$0")/.." && pwd)
file=$context/docker/Dockerfile
work=$(mkdir -p "${1:?usage: docker/try-image.sh WORK}" && cd "$1" && pwd)
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)}

base() { # a Debian with what the official Python image has: python, pip and Python's headers
    if [ -e "$work/base/.whole" ]; then return; fi
    rm -rf "$work/base"
    debootstrap --variant=minbase --include=ca-certificates,python3-dev,python3-pip,python3-venv \
        bookworm "$work/base" "$mirror" >"$work/debootstrap.log"
    ln -s ../../bin/python3 "$work/base/usr/local/bin/python"
    touch "$work/base/.whole"
}

instructions() { # one a line: comments left out, continued lines joined
    sed -e '/^ *#/d' "$file" | sed -e ':a' -e '/\\$/{N;s/ *\\\n */ /;ba' -e '}' | sed -e '/^$/d'
}

inside() { # ROOT COMMAND: a shell line in the root; its pip has this machine's pip settings
    local wheels=${PIP_FIND_LINKS:-} settings
    mapfile -t settings < <(env | grep '^PIP_')
    if [ -d "$wheels" ]; then mkdir -p "$1$wheels"; fi
    unshare --mount --pid --ipc --fork bash -euc '
        mount -t proc proc "$1/proc"
        mount --rbind /dev "$1/dev"
        if [ -d "$3" ]; then mount --bind "$3" "$1$3"; fi
        exec chroot "$1" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "${@:4}" \
            sh -euc ". /.environment; cd \"\$WORKDIR\"; $2"
    ' - "$1" "$2" "$wheels" "${settings[@]}"
}

from() { # BASE STAGE: a stage begins
    root=$work/$2
    rm -rf "$root"
    cp -a "$work/base" "$root"
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    echo 'export WORKDIR=/' >"$root/.environment"
}

copy() { # [--from=STAGE] SOURCE... TARGET
    local source=$context target="${*: -1}"
    if [[ $1 == --from=* ]]; then source=$work/${1#--from=} && shift; fi
    [[ $target == /* ]] || target=$(. "$root/.environment" && echo "$WORKDIR")/$target
    if [ $# = 2 ] && [ -d "$source/$1" ]; then
        mkdir -p "$root/$target"
        cp -a --no-preserve=ownership "$source/$1/." "$root/$target"
    else
        (cd "$source" && cp -a --no-preserve=ownership "${@:1:$#-1}" "$root/$target")
    fi
}

argument() { # NAME or NAME=DEFAULT: from this script's environment where it is set there
    local name=${1%%=*}
    if [ -n "${!name:-}" ]; then echo "export $name='${!name}'" >>"$root/.environment"
    elif [[ $1 == *=* ]]; then echo "export $1" >>"$root/.environment"; fi
}

run() {
    inside "$root" "$1" </dev/null >"$root/.output" 2>&1 && return
    cat "$root/.output"
    exit 1
}

build() {
    local verb rest root=""
    while read -r verb rest; do
        echo "   $verb $rest" | cut -c 1-150
        case $verb in
            FROM) from "${rest%% AS *}" "${rest##* AS }" ;;
            ARG) if [ "$root" ]; then argument "$rest"; fi ;; # one before any stage names the base
            WORKDIR) mkdir -p "$root/$rest" && echo "export WORKDIR=$rest" >>"$root/.environment" ;;
            COPY) eval "copy $rest" ;;
            RUN) run "$rest" ;;
            ENV) echo "export $rest" >>"$root/.environment" ;;
            USER | ENTRYPOINT | CMD) echo "$rest" >"$root/.$verb" ;;
            HEALTHCHECK) echo "${rest#*CMD }" >"$root/.HEALTHCHECK" ;;
            EXPOSE | LABEL) ;;
            *) echo "try-image.sh does not know $verb" >&2 && exit 1 ;;
        esac
    done < <(instructions)
}

words() { python3 -c 'import json, sys; print(*json.load(sys.stdin), sep="\n")' <"$1"; }

contained() { # STAGE COMMAND...: as the engine would, with the settings of compose.yaml
    local root=$work/$1 mode=rw own=(--mount --ipc --pid --fork --kill-child)
    if [ "$1" = monitor ]; then mode=ro own=(--mount --ipc); fi # it shares the host's processes
    mkdir -p "$root/run/warmwatch"
    unshare "${own[@]}" bash -euc '
        root=$1 records=$2 mode=$3 uid=${4%:*} gid=${4#*:}
        shift 4
        mount --bind "$root" "$root"
        mount --bind "$records" "$root/run/warmwatch"
        mount -o "remount,bind,$mode" "$root/run/warmwatch"
        [ "$mode" = ro ] || mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/tmp"
        mount -t proc proc "$root/proc"
        mount --rbind /dev "$root/dev"
        mount -o remount,bind,ro "$root"
        exec chroot "$root" env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            sh -c ". /.environment; exec setpriv \"\$@\"" - --reuid "$uid" --regid "$gid" \
            --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"
    ' - "$root" "$work/records" "$mode" "$(cat "$root/.USER")" "${@:2}"
}

volume() { # the record directory, mounted with the options that compose.yaml gives its volume
    mountpoint -q "$work/records" && umount "$work/records"
    mkdir -p "$work/records"
    mount -t tmpfs -o "$(sed -n 's/^ *o: *//p' "$context/docker/compose.yaml")" tmpfs "$work/records"
    stat -c 'the record directory: %U:%G %a on %m' "$work/records"
}

healthy() {
    local check
    mapfile -t check < <(words "$work/monitor/.HEALTHCHECK")
    contained monitor "${check[@]}" 2>/dev/null
}

serve() {
    local entry command
    mapfile -t entry < <(words "$work/monitor/.ENTRYPOINT")
    mapfile -t command < <(words "$work/monitor/.CMD")
    if healthy; then echo "something else serves port 10464 here" >&2 && exit 1; fi
    contained monitor sh -c 'echo $$ && exec "$@"' - "${entry[@]}" "${command[@]}" \
        >"$work/monitor.output" 2>&1 &
    local started=$!
    trap leave EXIT
    until healthy; do kill -0 "$started" && sleep 0.2; done
    tail -n +2 "$work/monitor.output"
    grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs)' "/proc/$(monitor)/status"
    echo "HEALTHCHECK passes"
}

monitor() { # its pid, the first line of its output
    head -n 1 "$work/monitor.output"
}

leave() {
    kill "$(monitor)" && wait
    umount "$work/records"
}

train() { # until it has ended and the monitor has seen that
    local command
    mapfile -t command < <(words "$work/demo/.CMD")
    contained demo "${command[@]}" &
    local training=$!
    contained monitor warmwatch wait 'demo@*' --timeout 300
    stat -c 'a record of uid %u, mode %a: %n' "$work"/records/*
    contained monitor python -c 'if 1:
        import json, urllib.request
        answer = json.load(urllib.request.urlopen("http://127.0.0.1:10464/status"))
        rank = answer["runs"][0]["ranks"][0]
        print("its process, seen from the monitor:", rank["pid"], rank["process"])
        print("refusals:", answer["refusals"])'
    wait "$training"
    contained monitor warmwatch status demo
}

base
build
volume
serve
train
