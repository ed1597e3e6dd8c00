# What the scripts of this folder share: they set $suite, and read this file.

case $suite in
bookworm | trixie | sid) ;;
*)
	echo "image: unknown suite $suite: bookworm (ZooKeeper 3.8.0), trixie (3.9.3) or sid" >&2
	exit 2
	;;
esac

say() { echo "image: $*" >&2; }

# bootstrap FLAGS… TARGET runs mmdebstrap for the suite, after installing it if necessary.
bootstrap() {
	if ! command -v mmdebstrap >/dev/null; then
		say "installing mmdebstrap"
		# Fails while another apt-get updates the lists, which will do as well.
		apt-get update >&2 || say "package lists not updated"
		DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends mmdebstrap >&2
	fi
	# The machine's own suites may be others: of its sources, only the mirror counts.
	mirror=${APT_MIRROR:-}
	for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
		if [ -z "$mirror" ] && [ -s "$file" ]; then
			mirror=$(sed -nE 's/^(URIs:|deb( \[[^]]*\])?) *(http[^ ]*).*/\3/p' "$file" | head -n 1)
		fi
	done
	if [ -z "$mirror" ]; then
		say "the machine names no Debian mirror: set APT_MIRROR"
		exit 1
	fi
	# A copy of sid that is some weeks old will do: the tests need a later release, not the latest.
	mmdebstrap --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
		"$@" "deb $mirror $suite main" >&2
}
