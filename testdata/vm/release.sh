#!/bin/bash
# Follows docs/install.md and docs/upgrade.md in the virtual machine of machine.sh, with what make dist makes and a web
# server, and without Go there: the script, upgrades by URL, what must be refused, a power cut, rollback, the Debian
# package, cloud-init and Ansible. It has the requirements of run.sh, and takes 20 minutes on two cores.
#
#   release.sh [CASE...]    runs the cases, by default all in the order of the variable all
set -euo pipefail
cd "$(dirname "$0")/../.."
arch=amd64
vm=${VM_DIR:-/var/tmp/monopod-vm-test}
. testdata/vm/machine.sh
testdata/install.sh minisign ansible-core openssl
www=$vm/www
program=monopod-linux-$arch
ssh_port=$(free_port) api_port=$(free_port) web_port=$(free_port) http_port=$(free_port) https_port=$(free_port)
host=10.0.2.2 # this machine, as the virtual one sees it
qemu='' server='' mount=''
finish() {
	[ -z "$mount" ] || umount "$vm/mnt"
	[ -z "$qemu$server" ] || kill -9 $qemu $server 2>/dev/null || true
}
trap finish EXIT

fail() {
	echo "FAIL $case: $*" >&2
	box 'journalctl -u monopod -n 15 --no-pager -o cat; monopod status' >&2 2>/dev/null || true
	exit 1
}

# until_true TIMEOUT COMMAND…: runs a command until it succeeds.
until_true() {
	local end=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ $SECONDS -lt $end ] || fail "in vain: $*"
		sleep 1
	done
}

# deployed is a command that succeeds when all web servers are ready.
kubectl='/root/kubectl --kubeconfig=/var/lib/monopod/admin.kubeconfig'
deployed="$kubectl rollout status deployment/web --timeout=5s"

ready() { until_true 120 box monopod status; }

# serve serves $www with HTTP and HTTPS. Below /cut, the connection ends in the middle of a program.
serve() {
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=release \
		-addext "subjectAltName=IP:$host" -keyout "$vm/tls.pem" -out "$vm/tls.crt" 2>/dev/null
	cat "$vm/tls.crt" >>"$vm/tls.pem"
	ln -sfn . "$www/cut"
	python3 - "$www" "$vm/tls.pem" "$http_port" "$https_port" <<'END' 2>/dev/null &
import functools, http.server, os, ssl, sys, threading
class Handler(http.server.SimpleHTTPRequestHandler):
    def copyfile(self, source, to):
        half = '/cut/' in self.path and 'linux' in self.path and os.fstat(source.fileno()).st_size // 2
        to.write(source.read(half or -1))
folder, cert, *ports = sys.argv[1:]
for port, tls in zip(ports, (False, True)):
    server = http.server.ThreadingHTTPServer(('127.0.0.1', int(port)), functools.partial(Handler, directory=folder))
    if tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever).start()
END
	server=$!
}

# sign FOLDER KEY: lists the folder's program in SHA256SUMS, and signs that.
sign() {
	(cd "$www/$1" && sha256sum $program >SHA256SUMS)
	minisign -S -s "$vm/$2.key" -m "$www/$1/SHA256SUMS" -t "$1" >/dev/null
}

# releases makes two releases, and wrong ones.
releases() {
	local key version wrong
	rm -rf "$www"
	mkdir -p "$www"
	rm -f "$vm"/{monopod,other}.{key,pub}
	for key in monopod other; do minisign -G -W -p "$vm/$key.pub" -s "$vm/$key.key" >/dev/null; done
	for version in v0.1.0 v0.2.0; do
		make -s dist ARCHS=$arch VERSION=$version MINISIGN_KEY="$vm/monopod.key" URL="http://$host:$http_port/$version" >"$vm/dist.log" 2>&1 ||
			{ tail "$vm/dist.log" >&2; return 1; }
		mv bin/dist "$www/$version"
	done
	for wrong in signature unsigned processor damaged; do
		mkdir "$www/$wrong"
		cp "$www/v0.2.0/"{$program,SHA256SUMS,SHA256SUMS.minisig} "$www/$wrong"
	done
	sign signature other
	rm "$www/unsigned/SHA256SUMS.minisig"
	printf '\267' | dd of="$www/processor/$program" bs=1 seek=18 conv=notrunc status=none # arm64's number
	sign processor monopod
	printf '!' | dd of="$www/damaged/$program" bs=1 seek=40000000 conv=notrunc status=none
	cp bin/web.tar "$www"
}

# facts prints what a refused upgrade must not change, and what an upgrade must not change of pods.
facts() {
	box 'sha256sum /usr/local/bin/monopod* /etc/systemd/system/monopod.service; systemctl show -P MainPID monopod; ls -A /var/tmp | grep monopod; ls /var/lib/monopod/upgrade* 2>/dev/null || true'
	pods
}

pods() {
	box "curl -sS --unix-socket /var/lib/monopod/monopod.sock http://x/api/v1/namespaces/default/pods" |
		grep -oE '"(containerID|restartCount|phase)": ?[^,}]*' | sort
}

says() { grep -q "$1" "$vm/out" || fail "no \"$1\": $(cat "$vm/out")"; }

# answers_as HOST: a request to port 80 for the host gets to a pod.
answers_as() { curl -sS --fail -m 10 -H "Host: $1" "http://127.0.0.1:$web_port/" | grep '^Hello from web-'; }

# memory_peak COMMAND…: runs a command in the machine, and prints the peak of its memory in MiB.
memory_peak() {
	box "{ $* & p=\$!; while h=\$(grep -s VmHWM /proc/\$p/status | tr -dc 0-9) && [ -n \"\$h\" ]; do top=\$h; sleep 0.2; done; wait \$p && echo peak \$((top / 1024)); }" >"$vm/out" 2>&1 ||
		fail "$(cat "$vm/out")"
	sed -n 's/^peak //p' "$vm/out"
}

script() { # curl … | sh; pods, an Ingress and a Gateway
	put "$vm/tls.crt" /usr/local/share/ca-certificates/
	box 'update-ca-certificates >/dev/null 2>&1'
	box "curl -sfL http://$host:$http_port/v0.1.0/install.sh | sh -" >"$vm/out" 2>&1 || fail "$(cat "$vm/out")"
	says 'starts with the machine (systemd)'
	box "systemctl is-enabled --quiet monopod && curl -sf http://$host:$http_port/web.tar -o /root/web.tar && monopod images import /root/web.tar" >/dev/null
	put testdata/web.yaml testdata/vm/web-routes.yaml bin/kubectl /root/
	box "$kubectl apply -f /root/web.yaml && monopod addon enable gateway-api && $kubectl apply -f /root/web-routes.yaml" >"$vm/out" 2>&1 ||
		fail "$(cat "$vm/out")"
	until_true 180 box "$deployed"
	until_true 60 answers_as web.example.com
	until_true 60 answers_as gateway.example.com
}

refused() { # wrong releases change nothing
	facts >"$vm/before"
	local wrong
	for wrong in signature unsigned processor damaged cut/v0.2.0; do
		! box "monopod upgrade https://$host:$https_port/$wrong/" >"$vm/out" 2>&1 || fail "upgrade accepts $wrong"
		says "^monopod: .*https://$host:$https_port/$wrong/"
		! box "curl -sfL http://$host:$http_port/v0.2.0/install.sh | MONOPOD_URL=http://$host:$http_port/$wrong sh -" >"$vm/out" 2>&1 ||
			fail "install.sh accepts $wrong"
		says "^install.sh: .*http://$host:$http_port/$wrong/"
		facts >"$vm/after"
		diff "$vm/before" "$vm/after" || fail "$wrong changes something"
	done
}

upgrade() { # and back, with the pods running on
	local peak
	pods >"$vm/before"
	peak=$(memory_peak monopod upgrade "https://$host:$https_port/v0.2.0/")
	says 'monopod v0.2.0 runs'
	box 'monopod version' | grep -q '^Monopod v0.2.0 ' || fail "another version is installed"
	pods | diff "$vm/before" - || fail "the upgrade changes pods"
	until_true 60 answers_as web.example.com
	until_true 60 answers_as gateway.example.com
	cut_power
	boot 768
	ready
	until_true 120 box "[ \"\$($kubectl get pods -o 'jsonpath={.items[*].status.containerStatuses[*].restartCount}')\" = '1 1 1' ]"
	until_true 120 box "$deployed"
	until_true 120 answers_as web.example.com
	until_true 120 answers_as gateway.example.com
	pods >"$vm/before"
	peak="$peak $(memory_peak monopod rollback)"
	box 'monopod version' | grep -q '^Monopod v0.1.0 ' || fail "rollback does not return to v0.1.0"
	pods | diff "$vm/before" - || fail "the rollback changes pods"
	for peak in $peak; do # a program has 80 MB
		[ "$peak" -gt 0 ] && [ "$peak" -lt 120 ] || fail "the peak of the memory is $peak MiB"
	done
}

package() { # apt, after the pods and data of the script's service; man pages and completion
	box "cd /root && curl -sf --remote-name-all http://$host:$http_port/v0.1.0/monopod_0.1.0_$arch.deb http://$host:$http_port/v0.2.0/monopod_0.2.0_$arch.deb"
	! box "apt-get install -y /root/monopod_0.1.0_$arch.deb" >"$vm/out" 2>&1 || fail "the package is installed beside another service"
	says 'uninstall --keep-pods'
	pods >"$vm/before"
	box "monopod uninstall --keep-pods && apt-get install -y /root/monopod_0.1.0_$arch.deb" >"$vm/out" 2>&1 || fail "$(cat "$vm/out")"
	ready
	box "apt-get install -y /root/monopod_0.2.0_$arch.deb" >"$vm/out" 2>&1 || fail "$(cat "$vm/out")"
	ready
	box 'monopod version' | grep -q '^Monopod v0.2.0 ' || fail "another version is installed"
	pods | diff "$vm/before" - || fail "the packages change pods"
	box "apt-get install -y --allow-downgrades /root/monopod_0.1.0_$arch.deb" >"$vm/out" 2>&1 || fail "$(cat "$vm/out")"
	ready
	pods | diff "$vm/before" - || fail "the older package changes pods"
	! box 'monopod install' >"$vm/out" 2>&1 || fail "monopod install works beside the package"
	says 'with apt'
	box 'zcat /usr/share/man/man1/monopod-upgrade.1.gz | grep -q insecure-skip-signature && bash -c ". /usr/share/bash-completion/completions/monopod && complete -p monopod"' >/dev/null ||
		fail "no man page or completion"
	box 'apt-get remove -y monopod >/dev/null && ! pgrep containerd && test -f /var/lib/monopod/state.db && apt-get purge -y monopod >/dev/null && ! ls /var/lib/monopod' 2>/dev/null ||
		fail "something is left, or the data too little"
}

# with_packages boots a machine with cloud-init and Python, and the cloud's data in $vm/seed.
with_packages() {
	cut_power
	cp --sparse=always "$vm/clean.raw" "$vm/disk.raw"
	mkdir -p "$vm/mnt"
	mount -o loop "$vm/disk.raw" "$vm/mnt"
	mount=yes
	chroot "$vm/mnt" sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends cloud-init python3 sudo' >"$vm/apt.log" 2>&1
	umount "$vm/mnt"
	mount=''
	boot 768 -blockdev "driver=vvfat,node-name=seed,dir=$vm/seed,label=CIDATA,read-only=on" -device virtio-blk-pci,drive=seed,addr=0x1e
}

cloud_init() { # the first boot; the image comes from the web server
	mkdir -p "$vm/seed"
	printf 'instance-id: box\nlocal-hostname: box\n' >"$vm/seed/meta-data"
	{
		sed -e "s|https://example.org/monopod|http://$host:$http_port/v0.1.0|" -e 's|image: nginx|image: "monopod.local/web:1"|' \
			-e 's|containerPort: 80,|containerPort: 8080,|' packaging/cloud-init/user-data.yaml
		echo 'locale: C.UTF-8' # the image has no other
		echo "bootcmd: [[sh, -c, 'mkdir -p /var/lib/monopod/images && curl -sf http://$host:$http_port/web.tar -o /var/lib/monopod/images/web.tar']]"
	} >"$vm/seed/user-data"
	with_packages
	box 'cloud-init status --wait --long' >"$vm/out" || fail "$(cat "$vm/out")"
	ready
	until_true 60 answers_as box
	[ "$(curl -sk -m 10 "https://127.0.0.1:$api_port/readyz")" = ok ] || fail "config.yaml has no effect"
	box 'monopod uninstall --purge' >/dev/null
}

ansible() { # install and upgrade, each twice: the second time changes nothing
	local version changed
	cat >"$vm/hosts" <<-END
		box.example.com ansible_host=127.0.0.1 ansible_port=$ssh_port ansible_user=root ansible_ssh_private_key_file=$vm/key ansible_ssh_common_args='${ssh_options[*]}'
	END
	for version in v0.1.0 v0.1.0 v0.2.0 v0.2.0; do
		sed "s|https://example.org/monopod/v1.2.0|http://$host:$http_port/$version|" packaging/ansible/playbook.yml >"$vm/playbook.yml"
		LC_ALL=C.UTF-8 HOME="$vm" ANSIBLE_ROLES_PATH=packaging/ansible/roles ansible-playbook -i "$vm/hosts" "$vm/playbook.yml" >"$vm/out" 2>&1 ||
			fail "$(cat "$vm/out")"
		changed=$(grep -c '^changed:' "$vm/out" || true)
		if [ "$version" = "${last:-}" ]; then
			[ "$changed" = 0 ] || fail "the second run changes something: $(cat "$vm/out")"
		fi
		last=$version
		ready
		box 'monopod version' | grep -q "^Monopod $version " || fail "not $version"
	done
	[ "$(curl -sk -m 10 "https://127.0.0.1:$api_port/readyz")" = ok ] || fail "config.yaml has no effect"
}

all=(script refused upgrade package cloud_init ansible)
case=releases
mkdir -p "$vm"
make -s web kubectl >/dev/null
make_disk
releases
serve
cp --sparse=always "$vm/clean.raw" "$vm/disk.raw"
boot 768
for case in "${@:-${all[@]}}"; do
	began=$SECONDS
	"$case"
	echo "ok $case ($((SECONDS - began)) s)"
done
