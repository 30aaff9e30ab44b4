# Sourced by quickstart and test: makes .venv in the checkout, installs symjax into
# it, and keeps every cache in .cache, so that nothing outside the checkout changes.

unset CDPATH
name=$(basename "$0")
root=$(cd -P "$(dirname "$0")/.." && pwd)
venv=$root/.venv
mark=$venv/made-by-symjax # says where it was made

say() { printf '%s: %s\n' "$name" "$*"; }

die() { # die MESSAGE WAY-OUT...
  printf '%s: %s\n' "$name" "$1" >&2
  shift
  if [ $# -gt 0 ]; then printf '  %s\n' "$@" >&2; fi
  exit 1
}

# Prints why a Python can't make the environment: old, new, venv or broken; or
# nothing. Python 2 understands the program too, so as to be refused by version.
flaw() {
  "$1" -c '
import sys
if sys.version_info[:2] < (3, 11): print("old")
elif sys.version_info[:2] > (3, 13): print("new")
else:
    try: import ensurepip, venv
    except ImportError: print("venv")
' 2>/dev/null || echo broken
}

version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }

explain() { # explain FLAW PYTHON: stops with what is wrong and how to mend it
  local get_python="Debian, Ubuntu: sudo apt install python3 python3-venv
  macOS: brew install python@3.13
  elsewhere: https://www.python.org/downloads"
  local point_at="If one is there under another name: PYTHON=/path/to/python scripts/$name"
  case $1 in
  old | new)
    die "Python 3.11, 3.12 or 3.13 is needed; $2 is Python $(version "$2")." \
      "$get_python" "$point_at"
    ;;
  venv)
    die "$2 (Python $(version "$2")) lacks the venv and ensurepip modules." \
      "Debian, Ubuntu: sudo apt install python$(version "$2")-venv" \
      "elsewhere: use a complete Python, PYTHON=/path/to/python scripts/$name"
    ;;
  broken)
    die "PYTHON is $2, which is no working Python." \
      "Name a Python 3.11 to 3.13, or leave PYTHON unset to have one found."
    ;;
  missing)
    die "no Python was found (looked for $2)." "$get_python" "$point_at"
    ;;
  esac
}

# Sets `python` to the first interpreter that will do, or explains what is wrong
# with the first one found.
find_python() {
  if [ -n "${PYTHON:-}" ]; then
    python=$(command -v "$PYTHON") || python=$PYTHON
    explain "$(flaw "$python")" "$python"
    return
  fi
  local candidate problem first='' first_problem=missing
  for candidate in python3 python3.13 python3.12 python3.11; do
    python=$(command -v $candidate) || continue
    problem=$(flaw "$python")
    if [ -z "$problem" ]; then return; fi
    # A version manager's stand-in for a version that is switched off is broken.
    if [ -z "$first" ] && [ "$problem" != broken ]; then
      first=$python first_problem=$problem
    fi
  done
  explain "$first_problem" "${first:-python3, python3.13, python3.12, python3.11}"
}

# What a finished installation was made from; a change in it asks for another.
recipe() {
  echo "$root"
  version "$venv/bin/python" || true
  cat "$root/pyproject.toml"
}

is_usable() {
  [ -e "$venv/installed-user" ] && [ "$(cat "$mark")" = "$root" ] &&
    "$venv/bin/python" -m pip --version >/dev/null 2>&1
}

# Moves whole folders into and out of place, so that an interruption leaves either
# no .venv or a marked one.
make_venv() {
  if [ -e "$venv" ] && [ ! -e "$mark" ]; then
    die "$venv was not made by this script, so it stays as it is." \
      "Move it away or delete it, then run scripts/$name again."
  fi
  find_python
  say "making .venv with Python $(version "$python") ($python)"
  rm -rf "${TMPDIR:?}"/* # what an interrupted installation left
  local scratch
  scratch=$(mktemp -d "$TMPDIR/venv.XXXXXX")
  mkdir "$scratch/new"
  echo "$root" >"$scratch/new/${mark##*/}"
  if [ -e "$venv" ]; then mv "$venv" "$scratch/old"; fi
  mv "$scratch/new" "$venv"
  rm -rf "$scratch"
  "$python" -m venv "$venv" || die "$python could not make .venv; its words are above."
}

# Shows of pip's output only the big downloads, and its complaints.
pip_install() {
  "$venv/bin/python" -m pip install --disable-pip-version-check "$@" |
    while read -r word rest; do
      case "$word $rest" in
      "Downloading "*" MB)") echo "  downloading ${rest%%-*} (${rest##*(}" ;;
      "Installing collected "*) echo "  unpacking" ;;
      esac
    done || die "the installation failed; pip's words are above." \
    "Once that is settled, run scripts/$name again."
}

# prepare EXTENT PIP-ARGUMENTS...: an environment with at least EXTENT, user or dev.
prepare() {
  local extent=$1
  shift
  # Settings that would make Python or pip use places outside the checkout.
  unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_ROOT
  export PIP_USER=0 PIP_CACHE_DIR="$root/.cache/pip" XDG_CACHE_HOME="$root/.cache" \
    MPLCONFIGDIR="$root/.cache/matplotlib" TMPDIR="$root/.cache/tmp"
  mkdir -p "$TMPDIR"

  local remake=no
  if [ -n "${PYTHON:-}" ]; then
    find_python
    if [ "$(version "$python")" != "$(version "$venv/bin/python")" ]; then remake=yes; fi
  fi
  if [ $remake = no ] && [ "$(recipe)" = "$(cat "$venv/installed-$extent" 2>/dev/null)" ]; then
    say ".venv is up to date"
    return
  fi
  if [ $remake = yes ] || ! is_usable; then make_venv; fi
  say "installing symjax and what it needs into .venv (minutes, the first time)"
  rm -f "$venv"/installed-*
  pip_install --upgrade "pip>=25.1" # the first that knows --group
  pip_install --editable "$root" "$@"
  recipe >"$venv/installed-user"
  recipe >"$venv/installed-$extent"
}
