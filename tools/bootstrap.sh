# Prepares a machine for this project; sourced by tests/run and examples/run.
# Sees to a C++ compiler and a Python that can make environments, makes .venv, builds, installs.
# Written for bash 3.2, which macOS has. Sets ROOT, PYTHON (that of .venv) and BUILD_DIR.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"

say() { printf '%s\n' "-- $*"; }

die() {
  printf '%s\n' "error: $*" >&2
  exit 1
}

# Runs a command as root; false where that is not possible.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    sudo "$@"
  else
    return 1
  fi
}

# Installs the packages of the system that it is called for: apt's names, then brew's after --.
install_packages() {
  local apt_names="" brew_names="" target=apt name
  for name in "$@"; do
    if [ "$name" = -- ]; then
      target=brew
    elif [ $target = apt ]; then
      apt_names="$apt_names $name"
    else
      brew_names="$brew_names $name"
    fi
  done
  if command -v apt-get >/dev/null; then
    say "installing$apt_names"
    as_root apt-get update -qq
    # shellcheck disable=SC2086  # the names are words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
      $apt_names >/dev/null || die "could not install packages; as root, run: apt-get install$apt_names"
  elif command -v brew >/dev/null && [ -n "$brew_names" ]; then
    say "installing$brew_names"
    # shellcheck disable=SC2086
    brew install -q $brew_names || die "could not install packages; run: brew install$brew_names"
  elif [ "$(uname -s)" = Darwin ]; then
    die "missing:$brew_names; install Homebrew (https://brew.sh), then run: brew install$brew_names"
  else
    die "this system has no apt-get; install with its own package manager what Debian calls:$apt_names"
  fi
}

# True if the compiler is GCC 12, clang 16, Apple's clang 15 or newer.
is_good_compiler() {
  command -v "$1" >/dev/null || return 1
  printf '%s\n' '#include <string>' \
    '#if defined(__apple_build_version__)' '#define GOOD (__clang_major__ >= 15)' \
    '#elif defined(__clang__)' '#define GOOD (__clang_major__ >= 16)' \
    '#else' '#define GOOD (__GNUC__ >= 12)' '#endif' \
    'static_assert(GOOD); int main() {}' |
    "$1" -std=c++20 -x c++ - -fsyntax-only 2>/dev/null
}

# Prints the first good compiler.
find_compiler() {
  local name
  for name in ${CXX:+"$CXX"} g++ g++-14 g++-13 g++-12 c++ clang++ clang++-18 clang++-17 clang++-16; do
    if is_good_compiler "$name"; then
      printf '%s\n' "$name"
      return 0
    fi
  done
  return 1
}

prepare_compiler() {
  local found
  if ! found="$(find_compiler)"; then
    if [ "$(uname -s)" = Darwin ]; then
      xcode-select --install 2>/dev/null
      die "no C++20 compiler; run: xcode-select --install"
    fi
    install_packages g++
    if ! found="$(find_compiler)"; then
      install_packages g++-12
      found="$(find_compiler)" || die "no C++20 compiler (GCC 12, clang 16 or newer) was found"
    fi
  fi
  export CXX="$found"
}

# Prints a clang++ that builds Objective-C++ as it is written here, if there is one.
find_objcxx() {
  local name version
  for name in clang++-16 clang++-19 clang++-18 clang++-17 clang++; do
    version="$("$name" -dumpversion 2>/dev/null)" || continue
    if [ "${version%%.*}" -ge 16 ] 2>/dev/null; then
      printf '%s\n' "$name"
      return 0
    fi
  done
  return 1
}

# True if the test double of Metal can be built: clang, GNUstep, and GCC's Objective-C library.
has_metal_host() {
  find_objcxx >/dev/null && [ -f /usr/include/GNUstep/Foundation/Foundation.h ] &&
    [ -f "$(gcc -print-file-name=libobjc.so 2>/dev/null)" ] &&
    [ -f "$(gcc -print-file-name=include 2>/dev/null)/objc/objc.h" ]
}

# Sets METAL to what CMake's LUCID_METAL is to be for the tests: AUTO on a Mac, on Linux the test
# double, or OFF where its packages cannot be had.
prepare_metal() {
  local name packages=libgnustep-base-dev
  METAL=AUTO
  if [ "$(uname -s)" != Linux ]; then
    return
  fi
  METAL=host
  if has_metal_host; then
    return
  fi
  METAL=OFF
  if command -v apt-get >/dev/null; then
    as_root apt-get update -qq
    for name in clang-16 clang-19 clang-18 clang-17; do
      if find_objcxx >/dev/null; then
        break
      elif apt-cache show "$name" >/dev/null 2>&1; then
        packages="$packages $name"
        break
      fi
    done
    # GCC's own library, of the version of the gcc that is asked for its place.
    packages="$packages gcc libobjc-$(gcc -dumpversion 2>/dev/null | cut -d. -f1)-dev"
    say "installing $packages"
    # shellcheck disable=SC2086  # the names are words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qqy --no-install-recommends \
      $packages >/dev/null
  fi
  if has_metal_host; then
    METAL=host
  else
    say "the tests of metal are left out: they need clang 16, GNUstep and libobjc;" \
      "as root, run: apt-get install $packages"
  fi
}

# True if the interpreter is of a supported version, makes environments and has its headers.
is_good_python() {
  command -v "$1" >/dev/null || return 1
  "$1" - 2>/dev/null <<'PYTHON'
import ensurepip, os, sys, sysconfig, venv
good = (3, 10) <= sys.version_info < (3, 14)
sys.exit(0 if good and os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")) else 1)
PYTHON
}

# Prints the first good interpreter; LUCID_PYTHON goes first.
find_python() {
  local name
  for name in ${LUCID_PYTHON:+"$LUCID_PYTHON"} python3.11 python3.12 python3.13 python3.10 python3; do
    if is_good_python "$name"; then
      printf '%s\n' "$name"
      return 0
    fi
  done
  return 1
}

# Makes .venv, anew if its interpreter is gone.
prepare_environment() {
  local found
  PYTHON="$VENV/bin/python"
  if ! "$PYTHON" -c 'import pip' 2>/dev/null; then
    if ! found="$(find_python)"; then
      install_packages python3 python3-venv python3-dev -- python@3.11
      found="$(find_python)" || die "no Python 3.10 to 3.13 with venv and headers was found"
    fi
    say "making .venv with $("$found" --version)"
    rm -rf "$VENV"
    "$found" -m venv "$VENV" || die "could not make $VENV"
    pip_install 'pip>=23.1'
  fi
  BUILD_DIR="$ROOT/build/$("$PYTHON" -c 'import sys; print(sys.implementation.cache_tag)')"
}

pip_install() {
  "$PYTHON" -m pip --disable-pip-version-check install -qq "$@" || die "pip install $* failed"
}

# Prints what pyproject.toml needs for a build, one requirement a line.
build_requirements() {
  "$PYTHON" - "$ROOT/pyproject.toml" <<'PYTHON'
import sys
try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib
with open(sys.argv[1], "rb") as file:
    print("\n".join(tomllib.load(file)["build-system"]["requires"]))
PYTHON
}

# Installs the build tools and the given requirement files, unless that is done already.
install_requirements() {
  local list="$VENV/build-requirements.txt" stamp="$VENV/requirements.stamp" file wanted
  build_requirements >"$list" || die "could not read pyproject.toml"
  wanted="$(cat "$list" "$ROOT/tests/requirements.txt" "$@" | cksum) $*"
  if [ -f "$stamp" ] && grep -qxF "$wanted" "$stamp"; then
    return
  fi
  say "installing build tools and requirements"
  set -- cmake ninja -r "$list" $(for file in "$@"; do printf '%s %s ' -r "${file#"$ROOT"/}"; done)
  (cd "$ROOT" && pip_install -c tests/requirements.txt "$@") || exit 1
  printf '%s\n' "$wanted" >>"$stamp"
}

# Builds the wheel in BUILD_DIR, which is kept, and installs it. Arguments are CMake definitions.
# Skips both if nothing that goes into them has changed.
build_and_install() {
  local stamp="$VENV/installed.stamp" definition settings
  settings="$*"
  if [ -f "$stamp" ] && [ -d "$BUILD_DIR" ] && [ "$settings" = "$(cat "$stamp")" ] &&
    [ -z "$(cd "$ROOT" && find CMakeLists.txt pyproject.toml README.md cmake csrc python tests/cpp tests/metalhost \
      -newer "$stamp" -not -name '__pycache__' -not -name '*.pyc' 2>&1 | head -n 1)" ]; then
    return
  fi
  say "building (the first time takes some minutes)"
  # The wheel's name says it, and CMake builds for it: see cmake/LucidMacos.cmake.
  export MACOSX_DEPLOYMENT_TARGET="${MACOSX_DEPLOYMENT_TARGET:-14.0}"
  rm -f "$stamp"
  # The time of the stamp is the start of the build, so that a later edit is seen.
  printf '%s\n' "$settings" >"$stamp.new"
  set --
  for definition in $settings; do
    set -- "$@" "--config-settings=cmake.define.$definition"
  done
  pip_install --no-build-isolation --no-deps --force-reinstall \
    "--config-settings=build-dir=$BUILD_DIR" "$@" "$ROOT"
  mv "$stamp.new" "$stamp"
}
