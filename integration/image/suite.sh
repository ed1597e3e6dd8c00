# What the scripts of this folder share: they set $suite, and read this file.

case $suite in
bookworm | trixie | sid) ;;
*)
	echo "image: unknown suite $suite: bookworm (ZooKeeper 3.8.0), trixie (3.9.3) or sid" >&2
	exit 2
	;;
esac

say() { echo "image: $*" >&2; }

# mirror FOLDER prints the Debian mirror of a machine with these sources of apt, whose suites may be others; nothing where
# they name none, as on Ubuntu.
mirror() {
	if [ -n "${APT_MIRROR:-}" ]; then
		echo "$APT_MIRROR"
		return
	fi
	for file in "$1/sources.list.d/debian.sources" "$1/sources.list"; do
		if [ -s "$file" ]; then
			sed -nE '/ubuntu/!s/^(URIs:|deb( \[[^]]*\])?) *(http[^ ]*).*/\3/p' "$file"
		fi
	done | head -n 1
}

# bootstrap FLAGS… TARGET runs mmdebstrap for the suite, after installing it if necessary.
bootstrap() {
	if ! command -v mmdebstrap >/dev/null; then
		say "installing mmdebstrap"
		# Fails while another apt-get updates the lists, which will do as well.
		apt-get update >&2 || say "package lists not updated"
		DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends mmdebstrap debian-archive-keyring >&2
	fi
	# Without a source mmdebstrap takes Debian's own, and Debian's keys where apt has others. A copy of sid that is some
	# weeks old will do: the tests need a later release, not the latest.
	from=$(mirror /etc/apt)
	mmdebstrap --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Check-Valid-Until "false"' \
		"$@" ${from:+"deb $from $suite main"} >&2
}
