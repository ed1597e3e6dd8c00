#!/usr/bin/env bash
# Checks the model of the lock recipe, and that every variant of it with a part left out
# is caught. Needs spin and gcc.
set -euo pipefail
model=$(cd "$(dirname "$0")" && pwd)/lock.pml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

# check OPTION… prints the model checker's report on the model built with these options.
check() {
	spin -a "$@" "$model" >/dev/null
	gcc -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c
	./pan -m200000
}

report=$(check)
errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' <<<"$report")
states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' <<<"$report")
printf '%-14s %s errors in %.0f states\n' recipe "$errors" "$states"
if [ "$errors" != 0 ] || [ "$(printf %.0f "$states")" -lt 7000000 ]; then
	echo "expected no error in at least 7 million states" >&2
	exit 1
fi

# variant SWITCH TEXT wants the model without a part to fail, in the way that TEXT is in.
variant() {
	local found
	found=$(check "-D$1" | sed -n 's/^pan:[0-9]*: \(.*\) (at depth.*/\1/p')
	printf '%-14s %s\n' "$1" "${found:-not caught}"
	[[ $found == *"$2"* ]]
}

variant FENCED=false 'value==read'
variant UNPROTECTED 'invalid end state'
variant NOSYNC 'invalid end state'
variant STALESESSION 'invalid end state'
variant NODEADLINE 'believes'
variant NORECHECK 'believes'
echo "model: $(printf %.0f "$states") states, no error; 6 broken variants caught"
