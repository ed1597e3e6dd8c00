#!/bin/bash
# Plays the same scenes with zkr lock, etcdctl lock, consul lock and flock, and prints what each does: a lock whose
# znode, lease or session somebody else removes, a server that is silent for 25 s, a tool that is killed, and a
# nested lock. Leases and sessions have 10 s, consul's 15 s. It needs etcd, etcdctl, consul, curl and flock on the
# PATH, and Docker for a ZooKeeper:
#	go run ./integration/cmd/withzk -- cmd/zkr/peers.sh
set -u
cd "$(dirname "$0")" || exit
work=$(mktemp -d)
go build -o "$work/zkr" . || exit
cd "$work" || exit
export ZKR_SERVERS=$ZKRECIPES_SERVERS ZKR_SESSION_TIMEOUT=10s ZKR_NAMESPACE=peers-$$
export ETCDCTL_ENDPOINTS=127.0.0.1:32379 CONSUL_HTTP_ADDR=127.0.0.1:38500
etcd --data-dir etcd --listen-client-urls http://127.0.0.1:32379 --advertise-client-urls http://127.0.0.1:32379 \
	--listen-peer-urls http://127.0.0.1:32380 --initial-advertise-peer-urls http://127.0.0.1:32380 \
	--initial-cluster default=http://127.0.0.1:32380 >etcd.log 2>&1 &
etcd=$!
consul agent -dev -http-port 38500 -dns-port -1 -grpc-port -1 -server-port 38300 -serf-lan-port 38301 -serf-wan-port 38302 >consul.log 2>&1 &
consul=$!
trap 'kill $etcd $consul; wait; rm -rf "$work"' EXIT
container=$(docker ps -q --filter "publish=${ZKRECIPES_SERVERS##*:}")
until etcdctl get x >/dev/null 2>&1 && curl -s $CONSUL_HTTP_ADDR/v1/status/leader | grep -q :; do sleep 0.2; done
etcdctl version | head -n 1
consul version | head -n 1
flock --version

# The command ends with 7 at SIGTERM. Its child ignores that.
cat >cmd <<'X'
#!/bin/sh
echo $$ > child
sh -c 'trap "" TERM; echo $$ > grandchild; exec sleep 300' > /dev/null 2>&1 &
trap 'echo > term; exit 7' TERM
while :; do sleep 0.05; done
X
# living WHEN says who of them is alive. A zombie is not.
cat >living <<'X'
#!/bin/sh
for who in child grandchild; do
	grep -q '^State:.[^ZX]' "/proc/$(cat $who)/status" 2> /dev/null && echo "  $1, the $who is alive"
done
exit 0
X
chmod +x cmd living

# lock TOOL PATH CMD… runs a command under a lock.
lock() {
	case $1 in
	zkr) ./zkr lock --grace 1s "/$2" -- "${@:3}" ;;
	etcdctl) etcdctl lock --ttl=10 "$2" -- "${@:3}" ;;
	consul) consul lock -shell=false -child-exit-code -timeout 60s "$2" "${@:3}" ;;
	flock) flock -w 20 "$2" "${@:3}" ;;
	esac
}

# lose TOOL PATH removes what the lock stands on.
lose() {
	case $1 in
	zkr) ./zkr kick --yes "$(./zkr ls -o json "/$2" | sed -n 's/.*"path": "\(.*-lock-.*\)".*/\1/p')" ;;
	etcdctl) etcdctl lease list | tail -n 1 | xargs etcdctl lease revoke ;;
	consul) curl -s -X PUT "$CONSUL_HTTP_ADDR/v1/session/destroy/$(curl -s $CONSUL_HTTP_ADDR/v1/session/list | sed -n 's/.*"ID": *"\([^"]*\)".*/\1/p')" ;;
	flock) rm "$2" ;;
	esac >/dev/null 2>&1
}

# silence TOOL - lets the server of a tool go on; without - it stops.
silence() {
	case $1$2 in
	zkr) docker pause "$container" ;;
	zkr-) docker unpause "$container" ;;
	etcdctl) kill -STOP "$etcd" ;;
	etcdctl-) kill -CONT "$etcd" ;;
	consul) kill -STOP "$consul" ;;
	consul-) kill -CONT "$consul" ;;
	esac >/dev/null
}

# finish TOOL PATH lets the next one in, and ends what lives.
finish() {
	local began=$SECONDS
	if lock "$1" "$2" ./living "at the next grant" 2>/dev/null; then
		echo "  the next grant came after $((SECONDS - began)) s"
	else
		echo "  no next grant within $((SECONDS - began)) s"
		./living "then"
	fi
	for who in child grandchild; do kill -9 "$(cat $who)" 2>/dev/null; done
}

# ended PID says how a tool has ended, if it does so within 8 s.
ended() {
	local began=$SECONDS
	while kill -0 "$1" 2>/dev/null; do
		if [ $((SECONDS - began)) -ge 8 ]; then
			echo "  8 s later it still runs"
			return
		fi
		sleep 0.1
	done
	wait "$1"
	echo "  exit code $?"
	[ -e term ] && echo "  the command got SIGTERM"
}

for tool in zkr etcdctl consul flock; do
	for scene in removed silent killed; do
		[ $tool$scene = flocksilent ] && continue # there is no server
		echo "$tool, $scene:"
		rm -f child grandchild term
		lock $tool $scene ./cmd >out 2>&1 &
		until [ -s grandchild ]; do sleep 0.05; done
		case $scene in
		removed)
			lose $tool $scene
			ended $!
			;;
		silent)
			silence $tool ""
			sleep 25
			./living "25 s into the silence"
			silence $tool -
			ended $!
			;;
		killed)
			kill -9 "$(ps -o ppid= -p "$(cat child)")"
			wait $! 2>/dev/null
			;;
		esac
		finish $tool $scene
		wait $! 2>/dev/null
	done
done
echo "nested, outer and inner token:"
# shellcheck disable=SC2016 # for the commands
lock zkr outer sh -c 'echo "  zkr: $ZKR_FENCING_TOKEN $("$0" lock /inner -- sh -c "echo \$ZKR_FENCING_TOKEN")"' ./zkr
# shellcheck disable=SC2016
lock etcdctl outer sh -c 'etcdctl put x 1 > /dev/null; echo "  etcdctl: $ETCD_LOCK_REV $(etcdctl lock inner -- sh -c "echo \$ETCD_LOCK_REV")"'
