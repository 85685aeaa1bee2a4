#!/usr/bin/env bash
# What people install: a source distribution and wheels, built in environments of their own, for
# each Python from 3.11 to 3.14 that is found (on the path, or of pyenv): install, serve, produce,
# consume, uninstall. A Python that is not there is said.
. "$(dirname "$0")/../harness.sh"

unset PYTHONPATH PYTHONDONTWRITEBYTECODE

python_of() { # VERSION: prints where it is
  local found
  for found in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
    if "$found" -c "import ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" \
      2>/dev/null; then
      command -v "$found"
      return
    fi
  done
  return 1
}

build_both() { # With the first Python: the wheel of another is made from the source distribution.
  "$1" -m venv "$WORK/build" && "$WORK/build/bin/pip" -q install build &&
    cp -r "$ROOT/src" "$ROOT"/{pyproject.toml,setup.py,MANIFEST.in,README.md,LICENSE} "$WORK/tree" &&
    find "$WORK/tree" \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} + &&
    find "$WORK/tree" -name '*.so' -delete &&
    "$WORK/build/bin/python" -m build -o "$WORK/dist" "$WORK/tree" >"$WORK/built" 2>&1 ||
    { tail -5 "$WORK/built"; return 1; }
  SDIST=$(echo "$WORK"/dist/*.tar.gz)
}

holds_only_the_package() {
  "$WORK/build/bin/python" - "$WORK"/dist/*.whl "$SDIST" <<'PYTHON'
import sys, tarfile, zipfile
wheel = zipfile.ZipFile(sys.argv[1]).namelist()
tops = {name.split("/")[0] for name in wheel if ".dist-info/" not in name}
assert tops == {"entrepot", "pyspark_entrepot.py"}, tops
assert not [name for name in wheel if name.endswith((".c", ".pyc"))]
parts = {part for name in wheel for part in name.split("/")}
assert not parts & {"sim", "tests", "bench", "examples"}, parts
source = {name.split("/")[1] for name in tarfile.open(sys.argv[2]).getnames() if "/" in name}
assert source == {"LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml",
                  "setup.cfg", "setup.py", "src"}, source
PYTHON
}

installs() { # PYTHON WHAT: into a new environment
  rm -rf "$WORK/env"
  "$1" -m venv "$WORK/env" && "$WORK/env/bin/pip" -q install "$2" && "$WORK/env/bin/pip" check
}

works() {
  local ENTREPOT=$WORK/env/bin/entrepot
  cd "$WORK" && # Nothing of the tree is on the path.
    "$ENTREPOT" --version && start_server || return
  printf 'one\ntwo\n' | "$ENTREPOT" produce -b "$BOOTSTRAP" trial &&
    expect $'one\ntwo' "$ENTREPOT" consume -b "$BOOTSTRAP" trial --from-beginning -n 2
  local code=$?
  stop_server
  return $code
}

goes_away() {
  "$WORK/env/bin/pip" -q uninstall -y entrepot && [ ! -e "$WORK/env/bin/entrepot" ] &&
    ! "$WORK/env/bin/python" -c 'import entrepot' 2>/dev/null &&
    [ -z "$(find "$WORK"/env/lib -path '*/entrepot/*' -name '*.py')" ]
}

tried() { # PYTHON
  "$1" -m venv "$WORK/builder" &&
    "$WORK/builder/bin/pip" -q wheel --no-deps -w "$WORK/wheels" "$SDIST" || return
  installs "$1" "$WORK"/wheels/*.whl && works && goes_away
  local code=$?
  rm -rf "$WORK/builder" "$WORK/wheels"
  return $code
}

from_source() { installs "$1" "$SDIST" && works && goes_away; }

mkdir "$WORK/tree"
FIRST=
for version in 3.11 3.12 3.13 3.14; do
  python=$(python_of $version) || { echo "SKIP  Python $version: not found"; continue; }
  if [ -z "$FIRST" ]; then
    FIRST=$python
    check "a source distribution and a wheel are built" build_both "$python"
    check "they hold the package and nothing else" holds_only_the_package
    check "the source distribution can be installed" from_source "$python"
  fi
  check "Python $version" tried "$python"
done
report
