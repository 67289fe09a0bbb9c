package machine_test

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/testdata/harness"
)

// behindNAT returns two machines, of which the first is behind a NAT that forwards port 6443 to it, and a function that
// cuts them off from each other: packets are lost without a word, and the NAT forgets its connections.
func behindNAT(t *testing.T, inside, outside string) (in, out *site, nat string, cut func(bool)) {
	t.Helper()
	all := sites(t, inside, outside)
	in, out = all[0], all[1]
	switches := strings.TrimSuffix(in.Netns, inside)
	router := switches + "nat"
	run := func(netns string, command ...string) {
		t.Helper()
		cmd := exec.Command(command[0], command[1:]...)
		if netns != "" {
			cmd = harness.Inside(netns, command...)
		}
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(command, " "), err, text)
		}
	}
	ip := func(netns string, args ...string) { t.Helper(); run(netns, append([]string{"ip"}, args...)...) }
	ip("", "netns", "add", router)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", router).Run() })
	ip(in.Netns, "link", "del", "eth0")
	ip(switches, "link", "add", "wan", "up", "master", "switch", "type", "veth", "peer", "name", "wan", "netns", router)
	ip(in.Netns, "link", "add", "eth0", "type", "veth", "peer", "name", "lan", "netns", router)
	in.address, nat = "10.99.0.2", "198.18.0.9"
	for _, link := range [][]string{{in.Netns, "eth0", in.address}, {router, "lan", "10.99.0.1"}, {router, "wan", nat}} {
		ip(link[0], "addr", "add", link[2]+"/24", "dev", link[1])
		ip(link[0], "link", "set", link[1], "up")
	}
	ip(in.Netns, "route", "add", "default", "via", "10.99.0.1")
	run(router, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.netfilter.nf_conntrack_tcp_loose=0")
	run(router, "nft", `
		table ip nat {
			chain out { type nat hook postrouting priority srcnat; oifname "wan" masquerade; }
			chain in { type nat hook prerouting priority dstnat; iifname "wan" tcp dport 6443 dnat to `+in.address+`; }
		}
		table ip filter {
			chain forward { type filter hook forward priority filter; ct state invalid drop; }
		}`)
	return in, out, nat, func(off bool) {
		t.Helper()
		forgets := map[bool]string{true: "5", false: "3600"}[off] // after so many seconds
		run(router, "sysctl", "-qw", "net.netfilter.nf_conntrack_tcp_timeout_established="+forgets)
		if off {
			run(router, "nft", "insert rule ip filter forward drop")
			return
		}
		run(router, "nft", "flush chain ip filter forward; add rule ip filter forward ct state invalid drop")
	}
}

// A node that is cut off for longer than its pods tolerate is back soon after the cut, with its tunnel, and ends the pods
// that were replaced: behind a NAT, and with a server behind one. MONOPOD_CUT=10m makes the cut that much longer.
func TestCutOff(t *testing.T) {
	t.Parallel()
	for _, inside := range []string{"node", "server"} {
		t.Run(inside+" behind a NAT", func(t *testing.T) {
			t.Parallel()
			other := map[string]string{"node": "server", "server": "node"}[inside]
			in, out, nat, cut := behindNAT(t, inside, other)
			server, node, at := out, in, out.address
			if inside == "server" {
				server, node, at = in, out, nat
			}
			server.run("serve", "--runtime", "fake", "--listen", server.address+":6443", "--tls-san", nat,
				"--node-monitor-grace-period", "15s", "--default-unreachable-toleration-seconds", "1",
				"--default-not-ready-toleration-seconds", "1")
			if err := server.Ready(); err != nil {
				t.Fatalf("%v\n%s", err, server.Log)
			}
			line, err := exec.Command(server.Cmd.Path, "token", "create", "--data-dir", server.Dir, "--server",
				"https://"+at+":6443").Output()
			if err != nil {
				t.Fatal(err)
			}
			node.run(append(strings.Fields(strings.TrimPrefix(string(line), "monopod ")), "--runtime", "fake")...)
			works := func(pod string) func() bool {
				return func() bool {
					code, log := server.Get(podPath + "/" + pod + "/log")
					return code == http.StatusOK && strings.Contains(log, pod)
				}
			}
			start := func(pod string) {
				server.insist(t, http.MethodPost, podPath, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: pod},
					Spec: corev1.PodSpec{NodeName: "node", TerminationGracePeriodSeconds: new(int64(1)),
						Containers: template("web").Spec.Containers}})
			}
			eventually(t, "the node is ready", func() bool { return server.ready("node") })
			start("before")
			eventually(t, "the log of a pod", works("before"))

			cut(true)
			eventually(t, "the node is not ready", func() bool { return !server.ready("node") })
			eventually(t, "its pod is deleted", func() bool {
				pod := server.pod(t, "before")
				return pod != nil && pod.DeletionTimestamp != nil
			})
			if text := os.Getenv("MONOPOD_CUT"); text != "" {
				longer, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(longer)
			}
			cut(false)
			back := time.Now()
			eventually(t, "the node is ready again", func() bool { return server.ready("node") })
			eventually(t, "the pod has ended", func() bool {
				code, _ := server.Get(podPath + "/before")
				return code == http.StatusNotFound
			})
			start("after")
			eventually(t, "the log of another pod", works("after"))
			if took := time.Since(back); took > harness.Scaled(45*time.Second) {
				t.Errorf("back after %v", took)
			} else {
				t.Logf("back after %v", took.Round(time.Second))
			}
		})
	}
}
