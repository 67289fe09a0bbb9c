#!/bin/sh
# Starts Monopod in ./.run with the sample workload, prints commands to try, and
# on Ctrl-C stops everything it started. With MONOPOD_RUNTIME=fake, or without
# root, the pods run in memory.
set -eu
cd "$(dirname "$0")/.."

data=$PWD/.run
runtime=${MONOPOD_RUNTIME:-containerd}
if [ "$runtime" = containerd ] && [ "$(id -u)" != 0 ]; then
	echo "containers need root; running the pods in memory instead" >&2
	runtime=fake
fi
socket=$data/monopod.sock
# Monopod corrects wrong permissions, but logs a warning for each.
install -d -m 711 "$data"
install -d -m 700 "$data/images"
install -m 600 bin/web.tar "$data/images/"
install -m 600 /dev/null "$data/monopod.log"

api() { curl -sS --fail --unix-socket "$socket" "$@"; }

# In a new session Monopod does not receive SIGINT on Ctrl-C: this script stops it and prints messages.
setsid bin/monopod serve --data-dir "$data" --listen 127.0.0.1:0 --runtime "$runtime" 2>"$data/monopod.log" &
pid=$!

stop() {
	trap - EXIT INT TERM
	if kill -0 "$pid" 2>/dev/null; then
		kill "$pid"
	fi
	wait "$pid" || true
	if [ "$runtime" = containerd ]; then bin/monopod reset --data-dir "$data"; fi
	echo "stopped; what was stored is in $data"
}
trap stop EXIT
trap 'exit 0' INT TERM

n=0
until api -o /dev/null http://x/readyz 2>/dev/null; do
	n=$((n + 1))
	if [ $n -gt 200 ] || ! kill -0 "$pid" 2>/dev/null; then
		echo "Monopod did not start; its log:" >&2
		tail -n 20 "$data/monopod.log" >&2
		exit 1
	fi
	sleep 0.05
done
api -o /dev/null http://x/apis/apps/v1/namespaces/default/deployments/web 2>/dev/null ||
	api -o /dev/null -H 'Content-Type: application/yaml' --data-binary @testdata/web.yaml http://x/apis/apps/v1/namespaces/default/deployments

ip=
n=0
while [ -z "$ip" ] && [ $n -lt 300 ]; do
	ip=$(api 'http://x/api/v1/namespaces/default/pods?fieldSelector=status.phase=Running' | grep -o '"podIP":"[^"]*"' | head -n 1 | cut -d'"' -f4) || true
	n=$((n + 1))
	[ -n "$ip" ] || sleep 0.1
done
if [ -z "$ip" ]; then
	echo "No pod became Running:" >&2
	bin/monopod why deployment/web --data-dir "$data" >&2 || true
	echo "The log: $data/monopod.log; what the machine lacks: bin/monopod check --data-dir $data" >&2
	exit 1
fi

kubectl=kubectl
command -v kubectl >/dev/null 2>&1 || kubectl='bin/kubectl'
cat <<EOT

Monopod runs, with three web servers. Try, in another terminal:

  export KUBECONFIG=$data/admin.kubeconfig
  $kubectl get pods -o wide
  $kubectl set env deployment/web COLOR=blue && $kubectl rollout status deployment/web
  $kubectl rollout undo deployment/web
  curl --unix-socket $socket http://x/api/v1/namespaces/default/pods
  bin/monopod why deployment/web
  curl http://$ip:8080/

The page: bin/monopod dashboard prints an address that signs in, or
  $(sed -n 's/ *server: //p' "$data/admin.kubeconfig")/ with the token $(cat "$data/pki/admin.token")
Break it and read why: docs/break-it.md shows how.
EOT
command -v kubectl >/dev/null 2>&1 || echo "No kubectl here: make kubectl builds one."
echo "Ctrl-C stops everything."
wait "$pid"
