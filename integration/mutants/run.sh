#!/usr/bin/env bash
# Plants one defect after the other in a copy of the library, and climbs the test ladder
# until a rung fails: a defect that no rung finds says that a test is missing. Each rung
# runs once, the schedules of faults and the chaos with many seeds.
#
#	run.sh [-check] [NAME…]    names of patches; default: all. -check only compiles them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check=false
if [ "${1-}" = -check ]; then
	check=true
	shift
fi
if [ $# = 0 ]; then
	cd "$here/patches"
	set -- *.patch
fi

# The ladder: a name and a command each, the quickest first.
rungs=(
	"virtual time" "go test -count=1 -failfast -timeout 5m ./internal/zkutil ./recipes/..."
	"schedules" "go test -count=1 -timeout 10m -run TestFaultSchedules ./recipes/mutex -schedules 10000"
	"real servers" "cd integration && go test -count=1 -failfast -timeout 20m ./mutex ./election ./points ./reliability"
	"chaos" "cd integration && go test -count=1 -timeout 30m -run TestChaos ./chaos -minutes 5"
)

# climb runs the rungs in the copy, and prints the first that fails, with its test.
climb() {
	local i log=$work/log
	for ((i = 0; i < ${#rungs[@]}; i += 2)); do
		if ! (cd "$work/copy" && bash -c "${rungs[i + 1]}") >"$log" 2>&1; then
			printf '%s | %s\n' "${rungs[i]}" \
				"$(grep -oE -m 1 -e '--- FAIL: [^ ]+|^panic: .*|^fatal error: .*' "$log" | sed 's/^--- FAIL: //' || tail -n 1 "$log")"
			return
		fi
	done
	echo "not caught |"
	return 1
}

missed=0
for patch in "$@"; do
	name=${patch%.patch}
	rm -rf "$work/copy"
	mkdir "$work/copy"
	(cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/copy")
	patch -s -p1 -d "$work/copy" <"$here/patches/$name.patch"
	(cd "$work/copy" && go build ./...)
	if $check; then
		found="applies and compiles"
	elif ! found=$(climb); then
		missed=$((missed + 1))
	fi
	printf '| %s | %s |\n' "$name" "$found"
done
if $check; then
	echo "mutants: $# apply and compile"
	exit
fi
echo "mutants: $# planted, $missed not caught"
[ "$missed" = 0 ]
