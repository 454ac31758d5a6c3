#!/usr/bin/env bash
#
# Builds the library and installs it, with its header and its pkg-config file.
#
#     crates/capi/install.sh                  into /usr/local
#     crates/capi/install.sh PREFIX           into PREFIX
#     DESTDIR=/tmp/x crates/capi/install.sh   the same below /tmp/x, for packages
#
# LIBDIR and INCLUDEDIR say where below the prefix, if not lib and include;
# CENOTE_PROFILE=dev installs a debug build.

set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
prefix="${1:-/usr/local}"
if [[ "$prefix" != /* ]]; then
    echo "install.sh: the prefix must be an absolute path, not $prefix" >&2
    exit 1
fi
libdir="$prefix/${LIBDIR:-lib}"
includedir="$prefix/${INCLUDEDIR:-include}"
root="${DESTDIR:-}"
profile="${CENOTE_PROFILE:-release}"

cd "$here/../.."
cargo build --quiet -p cenote-c --profile "$profile"
built="${CARGO_TARGET_DIR:-target}/${profile/dev/debug}"
version="$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)"

install -d "$root$libdir/pkgconfig" "$root$includedir"
case "$(uname -s)" in
Darwin)
    install -m 755 "$built/libcenote.dylib" "$root$libdir/libcenote.dylib"
    private=""
    ;;
*)
    # The number of the ABI is in the name that programs note: see build.rs.
    install -m 755 "$built/libcenote.so" "$root$libdir/libcenote.so.0"
    ln -sf libcenote.so.0 "$root$libdir/libcenote.so"
    private="-lpthread -ldl -lm -lgcc_s"
    ;;
esac
install -m 644 "$built/libcenote.a" "$root$libdir/libcenote.a"
install -m 644 "$here/include/cenote.h" "$root$includedir/cenote.h"
sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@includedir@|$includedir|" \
    -e "s|@version@|$version|" -e "s|@private@|$private|" \
    "$here/cenote.pc.in" >"$root$libdir/pkgconfig/cenote.pc"
chmod 644 "$root$libdir/pkgconfig/cenote.pc"
echo "cenote $version is in $root$prefix; programs find it by: pkg-config --cflags --libs cenote"
