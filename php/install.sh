#!/usr/bin/env bash
#
# Builds the extension and installs it for PHP on this machine, in one command:
#
#     php/install.sh                 build, copy the module, write the ini file, check
#     php/install.sh --uninstall     remove both again
#
# On Debian and Ubuntu it installs what it needs (PHP's headers, gcc); elsewhere it names it. Rust 1.89 or
# newer has to be there: https://rustup.rs. PHP_CONFIG selects one of several PHPs, for example
# PHP_CONFIG=php-config8.2. DESTDIR puts the files under another root.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

as_root() {
    if ((EUID == 0)) || [[ -n "${DESTDIR:-}" ]]; then "$@"; else sudo "$@"; fi
}
need() {
    command -v "$1" >/dev/null && return
    if ! command -v apt-get >/dev/null; then
        echo "$1 is missing; please install $2" >&2
        exit 1
    fi
    echo "Installing $2"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "$2" >/dev/null ||
        { as_root apt-get -qq update && as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get -qq install -y --no-install-recommends "$2" >/dev/null; }
}
command -v cargo >/dev/null || { echo "cargo is missing; please install Rust: https://rustup.rs" >&2; exit 1; }
need gcc gcc
[[ -n "${PHP_CONFIG:-}" ]] || need php-config php-dev
source "$here/tools.sh"

if [[ "$("$PHP" -n -r 'echo PHP_ZTS;')" == 1 ]]; then
    echo "$PHP is a thread-safe build (ZTS); the extension supports NTS builds only" >&2
    exit 1
fi
modules="${DESTDIR:-}$("$PHP_CONFIG" --extension-dir)"
debian="/etc/php/${php_version%.*}/mods-available"
scan="$("$PHP" -r 'echo PHP_CONFIG_FILE_SCAN_DIR;')"
if [[ -d "$debian" ]]; then ini="${DESTDIR:-}$debian/cenote.ini"; else ini="${DESTDIR:-}$scan/cenote.ini"; fi

# Debian enables a module for every kind of PHP: command line, fpm, Apache.
enable() {
    if [[ -z "${DESTDIR:-}" && -d "$debian" ]] && command -v "phpenmod" >/dev/null; then
        as_root "$1" -v "${php_version%.*}" cenote
    fi
}

if [[ "${1:-}" == --uninstall ]]; then
    enable phpdismod
    as_root rm -f "$modules/cenote.so" "$ini"
    echo "Removed $modules/cenote.so and $ini"
    exit 0
fi
echo "Building for PHP $php_version"
build_extension
as_root install -D -m 644 "$extension" "$modules/cenote.so"
printf '; Coroutines and Async\\Pool.\nextension=cenote\n' >"$target/cenote.ini"
as_root install -D -m 644 "$target/cenote.ini" "$ini"
enable phpenmod
echo "Installed $modules/cenote.so and $ini"
if [[ -z "${DESTDIR:-}" ]]; then
    "$PHP" -r '$pool = new Async\Pool(factory: fn() => "works"); echo "Async\\Pool ", $pool->acquire(), " in PHP ", PHP_VERSION, "\n";'
    echo "Restart php-fpm or Apache to load it there."
fi
