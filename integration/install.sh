#!/usr/bin/env bash
# Installs what the tests need besides Go and a Docker engine, on a bare Debian or Ubuntu, and the packages that the
# arguments name.
set -euo pipefail

has_all() {
	local command
	for command in mmdebstrap ip make mariadbd chromium javac promtool krb5kdc kadmin.local kinit faketime spin gcc; do
		command -v "$command" || return
	done
	[ -e /usr/share/java/curator-recipes.jar ] && /usr/bin/python3 -c 'import kazoo'
}

if [ $# = 0 ] && has_all; then exit; fi
root=()
if [ "$(id -u)" != 0 ]; then root=(sudo); fi
apt() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@"; }

packages=(mmdebstrap debian-archive-keyring mariadb-server make iproute2 default-jdk-headless libcurator-recipes-java python3-kazoo
	spin gcc libc6-dev prometheus krb5-kdc krb5-admin-server krb5-user faketime)
# Ubuntu's package of Chromium installs a snap. The runners of GitHub have Chromium without a package.
if ! command -v chromium; then packages+=(chromium); fi
"${root[@]}" mkdir -p /usr/share/man/man1 # without it a JDK can't be installed
apt update
apt install -y --no-install-recommends "${packages[@]}" "$@"
