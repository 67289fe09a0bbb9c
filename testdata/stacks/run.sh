#!/bin/sh
# Runs stacks as public blog posts write them on bin/monopod with its own containerd: kubectl applies the manifests in
# this folder, which name public images, and curl sends requests to the Ingress on port 80. images.sh makes the images.
#
#   testdata/stacks/run.sh [web|wordpress|mqtt|ci|flux]...
#
# It needs the programs that cluster.sh lists, and mmdebstrap, npm, node, git and mosquitto-clients. The first run
# builds for a quarter of an hour, most of it Flux; another one takes five minutes. The images stay in $work.
set -eu
cd "$(dirname "$0")/../.."
here=testdata/stacks
space=monopod-stacks
subnet=10.81.0
. testdata/programs/cluster.sh
. $here/images.sh
need node git mosquitto_pub
mkdir -p "$work/images"
[ -f "$work/images/debian.tar" ] || debian "$work/images/debian.tar"
prepare
serve
k wait --for=create --timeout=60s node/node1
k wait --for=condition=Ready --timeout=60s node/node1
inside "$monopod" images import --data-dir "$data" "$work/images/debian.tar"

# site HOST PATH [OPTION...]: asks the ingress controller as a browser does, and fails for a status of 400 or more.
site() {
	host=$1
	path=$2
	shift 2
	inside curl -sS --fail-with-body -m 10 --resolve "$host:80:$address" "$@" "http://$host$path"
}
# code HOST PATH [OPTION...]: prints the status of the answer.
code() { site "$@" -o /dev/null -w '%{http_code}' 2>/dev/null || true; }
why() { inside "$monopod" why --data-dir "$data" "$@"; }
# pods NAMESPACE: prints the UIDs of the pods and the restart counts of their containers.
pods() {
	fields='{.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}'
	k get pods -n "$1" -o "jsonpath={range .items[*]}$fields{end}"
}
# remove NAMESPACE: deletes the namespace and waits until no volume of its claims is left.
remove() {
	k delete namespace "$1" --timeout=90s
	expect '^0$' sh -c 'nsenter --net="$1" kubectl get pv -o name | wc -l' - "$net"
}

# web: a page that counts its visits in Redis, with a claim, a path that the Ingress rewrites, and an autoscaler.
web() {
	for part in namespace redis web hpa; do
		k apply -f "$here/web/$part.yaml"
	done
	k rollout status -n shop deployment/web --timeout=120s
	expect 'Hello from the shop, you are visitor 1 of /$' site shop.example.com /shop
	expect 'visitor 2 of /basket$' site shop.example.com /shop/basket
	expect '^404$' code shop.example.com /other
	head -c 9M /dev/zero >"$top/large"
	expect '^413$' code shop.example.com /shop --data-binary "@$top/large"
	k run -n shop stranger --image=busybox:1.36 --restart=Never -- nc -w 2 redis 6379
	expect '^Failed$' k get pod -n shop stranger -o 'jsonpath={.status.phase}'

	k delete pod -n shop -l app=redis
	k rollout status -n shop deployment/redis --timeout=90s
	expect 'visitor 3 of /$' site shop.example.com /shop

	expect 'Deployment/web +cpu: [0-9]+%/50% +2 +4 +2' k get hpa -n shop web
	k apply -f $here/web/load.yaml
	expect '^[34]$' k get deployment -n shop web -o 'jsonpath={.status.readyReplicas}'
	expect 'SuccessfulRescale .*above target' k describe hpa -n shop web
	k delete -f $here/web/load.yaml
	expect '^2$' k get deployment -n shop web -o 'jsonpath={.status.replicas}'
	remove shop
}

# wordpress: WordPress with its database, written as Kubernetes' tutorial does.
wordpress() {
	k apply -k $here/wordpress
	k rollout status -n blog deployment/wordpress-mysql --timeout=180s
	k rollout status -n blog deployment/wordpress --timeout=180s
	expect 'WordPress &rsaquo; Installation' site blog.example.com / -L
	expect 'WordPress has been installed' site blog.example.com '/wp-admin/install.php?step=2' -d weblog_title=Garden \
		-d user_name=gardener -d admin_password=tomato-7-leaf -d admin_password2=tomato-7-leaf \
		-d admin_email=g@example.com -d language=
	site blog.example.com /wp-login.php -o /dev/null -c "$top/cookies"
	site blog.example.com /wp-login.php -o /dev/null -b "$top/cookies" -c "$top/cookies" \
		-d log=gardener -d pwd=tomato-7-leaf -d testcookie=1
	nonce=$(site blog.example.com '/wp-admin/admin-ajax.php?action=rest-nonce' -b "$top/cookies")
	expect '"status":"publish"' site blog.example.com '/?rest_route=/wp/v2/posts' \
		-b "$top/cookies" -H "X-WP-Nonce: $nonce" \
		-d title='Tomatoes are red' -d content='They were green in June.' -d status=publish
	expect '"source_url":"[^"]*page.png"' site blog.example.com '/?rest_route=/wp/v2/media' \
		-b "$top/cookies" -H "X-WP-Nonce: $nonce" -F file=@docs/page.png
	upload=$(site blog.example.com '/?rest_route=/wp/v2/media' | tr -d '\\' |
		grep -o '/wp-content/[^"]*/page.png' | head -n 1)

	k delete pod -n blog --all
	k rollout status -n blog deployment/wordpress --timeout=180s
	posts
	before=$(pods blog)
	kill "$server"
	wait "$server" || true
	serve
	posts
	same 'pods after a restart of Monopod' "$before" "$(pods blog)"
	remove blog
}
# posts: fails unless the blog has its post and its picture.
posts() {
	expect 'Tomatoes are red' site blog.example.com /
	expect "^$(wc -c <docs/page.png)$" site blog.example.com "$upload" -o /dev/null -w '%{size_download}'
}

# mqtt: a broker behind a NodePort, and a flow editor that answers over HTTP what sensors last sent.
mqtt() {
	k apply -f $here/mqtt/
	k rollout status -n iot statefulset/mosquitto --timeout=90s
	k rollout status -n iot deployment/node-red --timeout=180s
	expect 'Node-RED' site flows.example.com /
	expect 'Started flows' k logs -n iot deployment/node-red
	k wait -n iot --for=condition=Available deployment/node-red
	expect '"attic":35.5' temperature attic 35.5
	expect '^35.5$' subscribe -C 1 -t alarms
	expect 'not authori[sz]ed' refused
	expect 'notification/' editor

	k delete pod -n iot --all
	k rollout status -n iot deployment/node-red --timeout=180s
	expect '"cellar":12' temperature cellar 12
	expect '"attic":35.5' site flows.example.com /last
	expect '^35.5$' subscribe -C 1 -t alarms
	remove iot
}
# temperature SENSOR VALUE: publishes the value and prints what the flow answers.
temperature() {
	inside mosquitto_pub -h "$address" -p 31883 -u sensor -P sensor-secret -q 1 -t "sensors/$1/temperature" -m "$2"
	site flows.example.com /last
}
subscribe() { inside mosquitto_sub -h "$address" -p 31883 -u sensor -P sensor-secret -W 5 "$@"; }
refused() { ! inside mosquitto_pub -h "$address" -p 31883 -t x -m y; }
# editor: subscribes to notifications over a WebSocket, as the editor does, and prints the first one.
editor() {
	NODE_PATH="$work/node-red/node_modules" inside node -e '
		const socket = new (require("ws"))("ws://" + process.argv[1] + "/comms", {headers: {Host: "flows.example.com"}});
		socket.on("open", () => socket.send(JSON.stringify({subscribe: "notification/#"})));
		socket.on("message", (data) => { console.log(String(data)); process.exit(0); });
		setTimeout(() => process.exit(1), 5000);' "$address"
}

# ci: a job with a database and a cache beside it, an artefact volume, and a job that fails.
ci() {
	k apply -f $here/ci/namespace.yaml
	k apply -f $here/ci/source.yaml -f $here/ci/job.yaml
	k wait -n ci --for=condition=Complete --timeout=120s job/build-42
	expect 'total of all orders: 5050' k logs -n ci job/build-42 -c integration
	expect 'ok 1 - the cache' k logs -n ci -l pipeline=shop --all-containers --prefix
	expect 'database system is ready' k logs -n ci job/build-42 -c postgres
	k apply -f $here/ci/shards.yaml -f $here/ci/nightly.yaml
	k wait -n ci --for=condition=Complete --timeout=90s job/shards-42
	k create job -n ci --from=cronjob/nightly nightly-now
	k wait -n ci --for=condition=Complete --timeout=90s job/nightly-now
	expect '5 files of the last build' k logs -n ci job/nightly-now
	expect 'testsuite name="orders"' k logs -n ci job/nightly-now
	expect 'No resources found' k get pods -n ci -l pipeline=shop
	expect 'No resources found' k get jobs -n ci -l pipeline=shop

	k apply -f $here/ci/broken.yaml
	k wait -n ci --for=condition=Failed --timeout=90s job/build-43
	expect 'PodFailurePolicy' k get job -n ci build-43 -o 'jsonpath={.status.conditions[?(@.type=="Failed")].reason}'
	expect 'sandwich' k logs -n ci job/build-43 -c test
	expect 'sandwich' why -n ci job/build-43
	remove ci
}

# flux: Flux' controllers, installed as `flux install` does, follow a git repository that is served in the cluster.
flux() {
	[ -f "$work/images/flux.tar" ] || controllers "$work/images/flux.tar"
	inside "$monopod" images import --data-dir "$data" "$work/images/flux.tar"
	manifests
	k apply --server-side -k "$work/flux/install"
	k wait -n flux-system --for=condition=Available --timeout=120s deployment --all
	k apply -f $here/flux/git.yaml
	k rollout status -n git deployment/git --timeout=90s
	rm -rf "$top/fleet"
	cp -r $here/flux/fleet "$top/fleet"
	commit --init
	k apply -f $here/flux/sync.yaml
	k wait -n flux-system --for=condition=Ready --timeout=90s gitrepository/flux-system
	expect '^apps +[0-9smh]+ +True +Applied revision: main@sha1:' k get kustomizations -n flux-system apps
	expect 'First page' site site.example.com /
	expect 'links .*@hourly' k get cronjob -n site

	# A change, and a file that is no longer there.
	echo '<h1>Second page</h1>' >"$top/fleet/apps/production/index.html"
	sed -i /jobs.yaml/d "$top/fleet/apps/base/kustomization.yaml"
	commit
	expect 'Second page' site site.example.com /
	expect 'No resources found' k get cronjob -n site
	expect '^1$' sh -c 'nsenter --net="$1" kubectl get configmap -n site -o name | grep -c pages' - "$net"
	applied

	# Drift.
	k scale -n site deployment/site --replicas=5
	k delete service -n site site
	expect '^2$' k get deployment -n site site -o 'jsonpath={.spec.replicas}'
	expect 'Second page' site site.example.com /
	applied

	# A mistake is reported, and a correction ends it.
	sed -i 's/port: 80$/port: 80000/' "$top/fleet/apps/base/site.yaml"
	commit
	expect 'apps .*False .*spec.ports\[0\].port: Invalid value' k get kustomizations -n flux-system apps
	expect 'spec.ports\[0\].port: Invalid value' why -n flux-system kustomizations.kustomize.toolkit.fluxcd.io/apps
	sed -i 's/port: 80000/port: 80/' "$top/fleet/apps/base/site.yaml"
	commit
	applied

	# The finalizers of Flux remove what it has applied.
	k delete -f $here/flux/sync.yaml --timeout=90s
	expect 'NotFound' absent namespace site
	k delete namespace git --timeout=90s
	k delete -k "$work/flux/install" --timeout=120s
}
# applied: fails unless Flux has applied the newest commit and all that it contains is ready.
applied() {
	expect "main@sha1:$(git -C "$top/fleet" rev-parse main)" \
		k get kustomization -n flux-system apps -o 'jsonpath={.status.lastAppliedRevision}'
	k wait -n flux-system --for=condition=Ready --timeout=90s kustomization/apps
}
absent() { ! k get "$@"; }
# commit [--init]: commits the folder of the repository and pushes it through the Ingress.
commit() {
	[ -z "${1:-}" ] || git init --quiet --initial-branch=main "$top/fleet"
	git -C "$top/fleet" add --all
	git -C "$top/fleet" -c user.name=me -c user.email=me@example.com commit --quiet --message=change
	inside git -C "$top/fleet" -c http.curloptResolve="git.example.com:80:$address" \
		push --quiet http://git.example.com/git/fleet.git main
}
# manifests: makes what `flux install --components=source-controller,kustomize-controller` applies, of the modules.
manifests() {
	rm -rf "$work/flux"
	module=$(go mod download -json github.com/fluxcd/flux2/v2@v2.9.5 | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	cp -r "$module/manifests" "$work/flux"
	chmod -R u+w "$work/flux"
	for name in source kustomize; do
		cp -r "$(folder github.com/fluxcd/$name-controller $here/flux)/config" "$work/flux/$name"
		chmod -R u+w "$work/flux/$name"
		sed -i -e "s#https://.*crds.yaml#../../$name/crd#" -e "s#https://.*deployment.yaml#../../$name/manager#" \
			"$work/flux/bases/$name-controller/kustomization.yaml"
		sed -i 1,3d "$work/flux/bases/$name-controller/patch.yaml" # the address of the notification-controller
	done
	sed -i -E '/bases\/(notification|helm|image-.*)-controller|source-watcher$/d' "$work/flux/install/kustomization.yaml"
}

parts ${*:-web wordpress mqtt ci flux}
