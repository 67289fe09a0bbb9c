# Functions that make the images of the stacks without a registry: Debian's packages and Node-RED of npm in one root
# file system, which the images share, with entry points that understand what those of the public images do. run.sh
# sources this file; $here is the folder of the stacks, and $work that of the results.

# archive FILE LAYER.TAR: writes an archive as docker save does, with the images that the standard input names, one per
# line with its configuration. They share the one layer, which the function removes.
archive() {
	folder=$(mktemp -d -p "$work")
	diff=$(sha256sum <"$2" | cut -d' ' -f1)
	gzip -1 <"$2" >"$folder/layer.tar"
	rm "$2"
	images=
	while read -r name config; do
		file=$(echo "$name" | tr /: __).json
		printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
			"$(go env GOARCH)" "$config" "$diff" >"$folder/$file"
		images="$images,{\"Config\":\"$file\",\"RepoTags\":[\"$name\"],\"Layers\":[\"layer.tar\"]}"
	done
	echo "[${images#,}]" >"$folder/manifest.json"
	tar -C "$folder" -cf "$1.tmp" .
	rm -r "$folder"
	mv "$1.tmp" "$1"
}

# debian FILE: writes the images of every stack except the controllers of Flux.
debian() {
	need mmdebstrap npm gzip
	npm install --silent --no-audit --no-fund --prefix "$work/node-red" node-red@4.1.15
	mmdebstrap --quiet --mode=root --variant=minbase --skip=output/dev \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' --aptopt='APT::Install-Recommends "false"' \
		--include=redis-server,mariadb-server,postgresql-15,mosquitto,mosquitto-clients,nodejs,git,busybox,netcat-openbsd \
		--include=apache2,libapache2-mod-php,php-mysql,php-redis,php-gd,wordpress,wordpress-theme-twentytwentythree \
		--customize-hook="$here/images/customize.sh \"\$1\" $work/node-red" \
		bookworm "$work/debian.tar" http://deb.debian.org/debian
	archive "$1" "$work/debian.tar" <<-'IMAGES'
		redis:7-alpine {"Entrypoint":["redis-entrypoint"],"Cmd":["redis-server"],"WorkingDir":"/data","Volumes":{"/data":{}}}
		mariadb:10.11 {"Entrypoint":["mariadb-entrypoint"],"Cmd":["mariadbd"],"Volumes":{"/var/lib/mysql":{}}}
		postgres:15-alpine {"Entrypoint":["postgres-entrypoint"],"Cmd":["postgres"],"StopSignal":"SIGINT","Volumes":{"/var/lib/postgresql/data":{}}}
		wordpress:6.1-apache {"Entrypoint":["wordpress-entrypoint"],"Cmd":["apache2-foreground"],"WorkingDir":"/var/www/html","StopSignal":"SIGWINCH","Volumes":{"/var/www/html":{}}}
		eclipse-mosquitto:2 {"Cmd":["mosquitto","-c","/mosquitto/config/mosquitto.conf"],"User":"1883:1883","Volumes":{"/mosquitto/data":{},"/mosquitto/log":{}}}
		nodered/node-red:4.1 {"Entrypoint":["node","node_modules/node-red/red.js","--userDir","/data"],"User":"1000:1000","WorkingDir":"/usr/src/node-red","Volumes":{"/data":{}}}
		node:18-alpine {"Cmd":["node"]}
		busybox:1.36 {"Cmd":["sh"],"Env":["PATH=/usr/lib/busybox:/usr/bin:/bin"]}
		ghcr.io/example/hits:1.0 {"Cmd":["apache2-foreground"],"WorkingDir":"/srv/hits","StopSignal":"SIGWINCH"}
		ghcr.io/example/git-http:1.0 {"Cmd":["git-http"],"StopSignal":"SIGWINCH"}
	IMAGES
}

# controllers FILE: writes the images of Flux' controllers, in the versions of their modules.
controllers() {
	(
		export CGO_ENABLED=0 # the images have no C library
		compile $here/flux github.com/fluxcd/source-controller github.com/fluxcd/kustomize-controller
	)
	mkdir -p "$work/flux-root/usr/local/bin"
	cp "$work/bin/source-controller" "$work/bin/kustomize-controller" "$work/flux-root/usr/local/bin/"
	tar -C "$work/flux-root" --owner=0 --group=0 -cf "$work/flux-layer.tar" .
	rm -r "$work/flux-root"
	archive "$1" "$work/flux-layer.tar" <<-'IMAGES'
		ghcr.io/fluxcd/source-controller:v1.9.5 {"Entrypoint":["source-controller"],"User":"65534:65534"}
		ghcr.io/fluxcd/kustomize-controller:v1.9.5 {"Entrypoint":["kustomize-controller"],"User":"65534:65534"}
	IMAGES
}
