#!/usr/bin/env bash
#
# Measures workloads whose right pool size is known, RUNS times each (10). Every recommendation has to be within one of it.
#
#     ci/size.sh [RUNS]
#
# `ci/test.sh size` runs it once. Ten runs take about 15 minutes. As root it works on a busy machine, too:
# the processors of two of the workloads are reserved then.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

exec ci/postgres.sh run -- ci/mariadb.sh run -- env CENOTE_SIZE_RUNS="${1:-10}" \
    cargo test --workspace --all-features --test known -- --nocapture --test-threads 1
