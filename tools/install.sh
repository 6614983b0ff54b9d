#!/usr/bin/env bash
# Makes .venv with what tools/pins.txt lists, torch, and this package. Does nothing when that is in place.
# Variables: PYTHON (interpreter), TORCH (requirement), TORCH_INDEX (index for torch alone), VENV (folder).
set -u
cd "$(dirname "$0")/.." || exit 1
VENV=${VENV:-.venv}
TORCH=${TORCH:-torch==2.13.0}
TORCH_INDEX=${TORCH_INDEX:-}
LOG=$VENV/install.log

fail() {
    echo "npu-verify: $*" >&2
    exit 1
}

# A launcher may exist and fail when it is run (pyenv shims), so each is run, not looked up.
works() {
    "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 13))' >/dev/null 2>&1
}

choose() {
    if [ -n "${PYTHON:-}" ]; then
        works "$PYTHON" || fail "PYTHON=$PYTHON does not run or is not Python 3.10 to 3.12; name another"
        echo "$PYTHON"
        return
    fi
    for name in python3.11 python3.12 python3.10 python3; do
        if works "$name"; then
            echo "$name"
            return
        fi
    done
    fail "no working Python 3.10, 3.11 or 3.12 found; install one, or name it: make PYTHON=/path/to/python3.11"
}

# The cause in one line, from pip's log.
explain() {
    if grep -q "No space left on device" "$LOG"; then
        fail "the disk ran full: $(free_mb) MB are free in $(pwd); about 3,000 are needed (8,000 with a CUDA build of torch)"
    elif grep -qE "NewConnectionError|NameResolutionError|Failed to establish|Name or service not known|Temporary failure in name|Could not resolve|ProxyError|ConnectTimeout|ReadTimeout|Network is unreachable" "$LOG"; then
        fail "no network: pip cannot reach its package index; see $LOG, then run the same command again"
    elif grep -q "No matching distribution" "$LOG"; then
        fail "$(grep -o 'No matching distribution found for .*' "$LOG" | tail -n 1) on $($BASE -V); see $LOG"
    fi
    fail "$1 failed: $(grep -E 'ERROR' "$LOG" | tail -n 1); see $LOG"
}

free_mb() {
    df -Pm . | awk 'NR == 2 { print $4 }'
}

# On a terminal pip shows its own progress; anywhere else one line a step is enough.
pip_install() {
    title=$1
    shift
    echo "[$title]"
    if [ -t 1 ]; then quiet=; else quiet="-q --progress-bar off"; fi
    # pip unpacks in TMPDIR, and /tmp is often a small memory disk
    TMPDIR=$PWD/$VENV/tmp "$VENV/bin/python" -m pip install $quiet --disable-pip-version-check --log "$LOG" "$@" 2>>"$LOG.err" ||
        { cat "$LOG.err" >>"$LOG"; explain "$title"; }
}

[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "this is $(uname -s) $(uname -m); the toolkit's compiler needs Linux on x86-64"
BASE=$(choose) || exit 1

mkdir -p "$(dirname "$VENV")" || fail "$(dirname "$VENV") cannot be written"
if command -v flock >/dev/null; then # `make demo` and `make test` at once: the second waits
    exec 9>"$VENV.lock" || fail "$VENV.lock cannot be written"
    flock 9
fi

wanted=$({ cat pyproject.toml tools/pins.txt tools/install.sh; echo "$TORCH $TORCH_INDEX"; "$BASE" -c 'import sys; print(sys.version, sys.base_prefix)'; pwd; } | sha256sum | cut -d ' ' -f 1)
stamp=$VENV/installed
[ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ] && "$VENV/bin/python" -c "" 2>/dev/null && exit 0

"$BASE" -c 'import venv, ensurepip' >/dev/null 2>&1 ||
    fail "$BASE has no venv module; on Debian and Ubuntu: apt-get install $("$BASE" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
held=$("$VENV/bin/python" -c 'import sys; print(sys.version, sys.base_prefix)' 2>/dev/null)
if [ "$held" != "$("$BASE" -c 'import sys; print(sys.version, sys.base_prefix)')" ]; then
    rm -rf "$VENV"
    [ "$(free_mb)" -ge 3000 ] || fail "too little disk: $(free_mb) MB free in $(pwd); about 3,000 are needed (8,000 with a CUDA build of torch)"
    "$BASE" -m venv "$VENV" 2>/dev/null || { rm -rf "$VENV"; fail "$BASE -m venv $VENV failed; is the folder writable and the disk not full ($(free_mb) MB free)?"; }
fi
rm -f "$stamp" "$LOG" "$LOG.err"
mkdir -p "$VENV/tmp"
trap 'rm -rf "$VENV/tmp"' EXIT

echo "Installing into $VENV with $("$BASE" -V): a few minutes, once. Details: $LOG"
pip_install "1/3 toolkit, models and test tools, as pinned in tools/pins.txt" --no-deps -r tools/pins.txt
pip_install "2/3 $TORCH${TORCH_INDEX:+ from $TORCH_INDEX}" -c tools/pins.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH"
pip_install "3/3 npu-verify itself" --no-deps --no-build-isolation -e .
rm -f "$LOG" "$LOG.err"
echo "$wanted" >"$stamp"
echo "Installed: $(du -sm "$VENV" | cut -f 1) MB"
