#!/usr/bin/env bash
# Plants one defect after the other in a copy of the library, and climbs the test ladder
# until a rung fails: a defect that no rung finds says that a test is missing. Each rung
# runs once, the schedules of faults and the chaos with many seeds. Before the first rung
# comes the test that the patch names, alone: most climbs end there.
# A rung that fails without a defect, too, finds none.
#
#	run.sh [-check|-table] [NAME…]    names of patches; default: all. -check only compiles them, -table lists them
#
# A patch begins with a line that says what the defect is, and a line "Found by TestName.".
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mode=plant
if [ "${1-}" = -check ] || [ "${1-}" = -table ]; then
	mode=${1#-}
	shift
fi
if [ $# = 0 ]; then
	cd "$here/patches"
	set -- *.patch
fi

# The ladder: a name and a command each, the quickest first.
rungs=(
	"virtual time" "go test -count=1 -failfast -timeout 5m ./internal/zkutil/..."
	"virtual time" "go test -count=1 -failfast -timeout 5m ./recipes/..."
	"schedules" "go test -count=1 -timeout 30m -run TestFaultSchedules ./recipes/mutex ./recipes/rwlock ./recipes/semaphore ./recipes/multilock -schedules 10000"
	"real servers" "cd integration && go test -count=1 -failfast -timeout 20m ./mutex ./election ./points ./reliability"
	"chaos" "cd integration && go test -count=1 -timeout 30m -run '^TestChaos\$' ./chaos -minutes 5"
)

# culprit names the test that failed first, or that ran when time was up.
culprit() {
	if grep -q '^panic: Test[^ ]* hangs: ' "$1"; then # see testkit.Bubble
		sed -n 's/^panic: \(Test[^ ]* hangs\): .*/\1/p;T;q' "$1"
	elif grep -q '^panic: test timed out' "$1"; then
		echo "$(sed -n '/^\trunning tests:/{n;s/^\t*\([^ ]*\).*/\1/p;q}' "$1") hangs"
	else
		grep -oE -m 1 -e '--- FAIL: [^ ]+|^panic: .*|^fatal error: .*' "$1" | sed 's/^--- FAIL: //' || tail -n 1 "$1"
	fi
}

found_by() { sed -n 's/^Found by \(Test[A-Za-z0-9_]*\)\.$/\1/p;/^---/q' "$here/patches/$1.patch"; }

if [ "$mode" = table ]; then
	printf '| Defect | Found by |\n|---|---|\n'
	for name in "${@%.patch}"; do
		printf '| %s | `%s` |\n' "$(head -n 1 "$here/patches/$name.patch")" "$(found_by "$name")"
	done
	exit
fi

# The library as it is now. Edits made meanwhile do not count.
mkdir "$work/whole"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t "$work/whole")

# print_remembered NAME prints the test that the patch of a defect names, as a rung: in all packages that have a test of
# that name, those of zkr included.
limit="-timeout 90s"
print_remembered() {
	local found packages
	found=$(found_by "$1")
	[ -n "$found" ] || return 0
	packages=$(cd "$work/whole" && grep -rl --include='*_test.go' "^func $found(" internal recipes cmd/zkr | xargs -rn 1 dirname | sort -u | sed 's|^|./|')
	[ -n "$packages" ] || return 0
	printf '%s\n' "virtual time" "go test -count=1 -failfast $limit -run '^$found\$' $(echo $packages)"
}

# try NAME COMMAND runs a rung in a copy. A copy whose tests do not compile ends the climb.
try() {
	(cd "$work/$1" && bash -c "$2") >"$work/log" 2>&1 && return
	if grep -E '\[(build|setup) failed\]$' "$work/log" >&2; then
		echo "does not compile: $2" >&2
		exit 2
	fi
	return 1
}

# sound COMMAND tells, once for each rung, whether it passes without a defect. A remembered
# test has to pass in a third of its time: then a defect hangs where the limit ends it.
sound() {
	local known
	known=$work/sound-$(cksum <<<"$1" | tr ' ' -)
	[ -e "$known" ] || { try whole "${1/"$limit"/-timeout 30s}" && touch "$known"; }
}

# climb NAME runs the rungs in the copy with that defect, and prints the first that fails, with its test.
climb() {
	local found first
	mapfile -t first < <(print_remembered "$1")
	set -- "${first[@]}" "${rungs[@]}"
	while [ $# != 0 ]; do
		if ! try defective "$2"; then
			found=$(culprit "$work/log")
			if sound "$2"; then
				printf '%s | %s\n' "$1" "$found"
				return
			fi
			echo "$1 fails without a defect, too: $(culprit "$work/log")" >&2
		fi
		shift 2
	done
	echo "not caught |"
	return 1
}

# files NAME are those that a patch changes.
files() { sed -n 's|^+++ b/||p' "$here/patches/$1.patch"; }

# plant NAME… makes the copy with these defects, and builds what they change.
plant() {
	local name
	rm -rf "$work/defective"
	cp -a "$work/whole" "$work/defective"
	for name in "$@"; do
		patch -s -p1 -d "$work/defective" <"$here/patches/$name.patch" || return # also where set -e does not count
	done
	(cd "$work/defective" && go build $(for name in "$@"; do files "$name" | xargs -n 1 dirname; done | sort -u | sed 's|^|./|'))
}

# check NAME… compiles all defects. Defects of different files are compiled together, because they can't hide each
# other's errors. If a group fails, its defects are compiled one by one, to name the one at fault.
check() {
	local group rest name taken
	while [ $# != 0 ]; do
		group=() rest=() taken=
		for name in "$@"; do
			if files "$name" | grep -qxF -f <(printf '%s\n' $taken); then
				rest+=("$name")
			else
				group+=("$name") taken+=" $(files "$name" | tr '\n' ' ')"
			fi
		done
		plant "${group[@]}" 2>/dev/null || for name in "${group[@]}"; do
			plant "$name" || { echo "$name does not apply or compile" >&2 && return 1; }
		done
		set -- "${rest[@]}"
	done
}

if [ "$mode" = check ]; then
	check "${@%.patch}"
	echo "mutants: $# apply and compile"
	exit
fi
missed=0
for name in "${@%.patch}"; do
	plant "$name"
	if ! found=$(climb "$name"); then
		missed=$((missed + 1))
	fi
	printf '| %s | %s |\n' "$name" "$found"
done
echo "mutants: $# planted, $missed not caught"
[ "$missed" = 0 ]
