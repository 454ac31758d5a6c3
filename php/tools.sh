# Sourced by the scripts of this folder: which PHP, the build, and the test runner of PHP.
# PHP_CONFIG selects another PHP than the one that `php-config` describes.

php_folder="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
PHP_CONFIG="${PHP_CONFIG:-$(command -v php-config8.2 || command -v php-config || true)}"
if [[ -z "$PHP_CONFIG" ]]; then
    echo "php-config is not found; install PHP's headers (Debian: apt-get install php-dev), or set PHP_CONFIG" >&2
    exit 1
fi
export PHP_CONFIG
# Debian's php-config names no program with a version.
php_version="$("$PHP_CONFIG" --version)"
PHP="${PHP:-$(command -v "php${php_version%.*}" || "$PHP_CONFIG" --php-binary)}"
export PHP
target="${CARGO_TARGET_DIR:-$php_folder/target}"
# `fast` builds in a fraction of the time; its speed says nothing.
profile="${CENOTE_PROFILE:-release}"
extension="$target/$profile/libcenote.so"

build_extension() {
    cargo build --quiet --profile "$profile" --locked --manifest-path "$php_folder/Cargo.toml"
}

# Runs tests with the runner that PHP ships: run_phpt [OPTION ...] FILE-OR-FOLDER ...
run_phpt() {
    local runner
    # Where Debian has it, or where PHP's own `make install` puts it.
    runner="$("$PHP_CONFIG" --extension-dir)/build/run-tests.php"
    [[ -f "$runner" ]] || runner="$("$PHP_CONFIG" --prefix)/lib/php/build/run-tests.php"
    local own=(-d "extension=$extension")
    # For a comparison with PHP as it is.
    [[ -z "${WITHOUT_CENOTE:-}" ]] || own=()
    TEST_PHP_EXECUTABLE="$PHP" NO_INTERACTION=1 "$PHP" "$runner" -q -n \
        "${own[@]}" "${phpt_options[@]}" "$@"
}
# What `-n` leaves out, if PHP has it as a module and not inside.
phpt_options=()
built_in=" $("$PHP" -n -m | tr '\n' ' ') "
for module in pcntl posix; do
    [[ "$built_in" == *" $module "* ]] || phpt_options+=(-d "extension=$module")
done
