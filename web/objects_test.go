package web_test

import (
	"fmt"
	"strings"
)

// call returns what an exported function of a module of the page returns, as JSON.
func (p page) call(module, call string) string {
	p.t.Helper()
	p.value(fmt.Sprintf(`(window.answer = undefined, import("/ui/core.js").then((core) => core.load(%q)).then((m) => `+
		`window.answer = JSON.stringify(m.%s)).catch((err) => window.answer = String(err)), true)`, module, call))
	p.sees(`window.answer !== undefined`)
	return p.value(`window.answer`).(string)
}

// linked: which objects belong together, as boxes and lines. $ stands for "one object".
func (p page) linked(*box) {
	const pod = `{"name": "web-1", "labels": {"app": "web"}}`
	all := map[string]string{
		"gate": `{"kind": "ingresses.networking.k8s.io", "obj": {"metadata": {"name": "gate"}, "spec": {"tls": ` +
			`[{"secretName": "cert"}], "rules": [{"http": {"paths": [{"backend": {"service": {"name": "web"}}}]}}]}}}`,
		"route": `{"kind": "httproutes.gateway.networking.k8s.io", "obj": {"metadata": {"name": "route"}, "spec": ` +
			`{"parentRefs": [{"name": "outer"}], "rules": [{"backendRefs": [{"name": "web"}]}]}}}`,
		"tcp": `{"kind": "tcproutes.gateway.networking.k8s.io", "obj": {"metadata": {"name": "tcp"}, "spec": ` +
			`{"parentRefs": [{"name": "outer"}], "rules": [{"backendRefs": [{"name": "web"}]}]}}}`,
		"web":  `{"kind": "services.", "obj": {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}}}`,
		"none": `{"kind": "services.", "obj": {"metadata": {"name": "none"}, "spec": {}}}`,
		"deploy": `{"kind": "deployments.apps", "obj": {"metadata": {"name": "web"}, "spec": {"template": {"metadata": ` +
			`{"labels": {"app": "web"}}, "spec": {"containers": [{"envFrom": [{"configMapRef": {"name": "settings"}}]}]}}}}}`,
		"pod": `{"kind": "pods.", "owner": "deployments.apps/web", "mood": "ok", "obj": {"metadata": ` + pod + `, "spec": {"serviceAccountName": "robot",
			"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}, {"secret": {"name": "key", "optional": true}}]}}],
			"containers": [{"env": [{"valueFrom": {"configMapKeyRef": {"name": "settings"}}}]}]}}}`,
		"other": `{"kind": "pods.", "mood": "bad", "obj": {"metadata": {"name": "other", "labels": {"app": "other"}}, ` +
			`"spec": {"containers": [{"envFrom": [{"configMapRef": {"name": "settings"}}]}]}}}`,
		"budget": `{"kind": "poddisruptionbudgets.policy", "obj": {"metadata": {"name": "b"}, "spec": {"selector": ` +
			`{"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]}}}}`,
		"shut": `{"kind": "networkpolicies.networking.k8s.io", "obj": {"metadata": {"name": "shut"}, "spec": ` +
			`{"podSelector": {}}}}`,
		"scale": `{"kind": "horizontalpodautoscalers.autoscaling", "obj": {"metadata": {"name": "h"}, "spec": ` +
			`{"scaleTargetRef": {"kind": "Deployment", "name": "web"}}}}`,
		"cron": `{"kind": "cronjobs.batch", "obj": {"metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": ` +
			`{"template": {"spec": {"containers": [{"envFrom": [{"secretRef": {"name": "key"}}]}]}}}}}}}`,
		"job": `{"kind": "jobs.batch", "owner": "cronjobs.batch/c", "obj": {"metadata": {"name": "j"}, "spec": ` +
			`{"template": {"spec": {}}}}}`,
		"data":   `{"kind": "persistentvolumeclaims.", "obj": {"metadata": {"name": "data"}}}`,
		"custom": `{"kind": "pods.", "owner": "lamps.example.com/red", "obj": {"metadata": {"name": "red-0"}, "spec": {}}}`,
	}
	for _, i := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		all["r"+i] = `{"kind": "pods.", "owner": "statefulsets.apps/r", "mood": "` + map[string]string{"3": "bad"}[i] + `", "obj": {"metadata": {"name": "r-` + i +
			`"}, "spec": {"volumes": [{"persistentVolumeClaim": {"claimName": "r-` + i + `"}}, {"configMap": {"name": ` +
			`"settings"}}]}}}`
		all["two"+i] = strings.ReplaceAll(all["pod"], "web-1", "web-"+i)
	}
	for _, c := range []struct{ name, objects, options, want string }{
		{"nothing", "", "", "|"},
		{"from the door to the claim", "gate web deploy pod data", "",
			"ingresses/gate services/web deployments/web pods/web-1 persistentvolumeclaims/data configmaps/settings " +
				"secrets/cert secrets/key serviceaccounts/robot" +
				"| deployments/web>pods/web-1 pods/web-1>persistentvolumeclaims/data pods/web-1>secrets/key " +
				"pods/web-1>configmaps/settings pods/web-1>serviceaccounts/robot " +
				"ingresses/gate>services/web ingresses/gate>secrets/cert services/web>deployments/web"},
		{"missing, but not what is optional or not listed", "pod", `{"listed": ["configmaps.", "secrets."]}`,
			"deployments/web pods/web-1 persistentvolumeclaims/data configmaps/settings! secrets/key serviceaccounts/robot| " +
				"deployments/web>pods/web-1 " +
				"pods/web-1>persistentvolumeclaims/data pods/web-1>secrets/key pods/web-1>configmaps/settings " +
				"pods/web-1>serviceaccounts/robot"},
		{"a Gateway", "route web", "", "gateways/outer httproutes/route services/web| httproutes/route>services/web " +
			"gateways/outer>httproutes/route"},
		{"a Gateway with TCP", "tcp web", "", "gateways/outer tcproutes/tcp services/web| tcproutes/tcp>services/web " +
			"gateways/outer>tcproutes/tcp"},
		{"a Service without labels, and a policy of all pods", "none shut other", "",
			"networkpolicies/shut services/none pods/other configmaps/settings| pods/other>configmaps/settings " +
				"networkpolicies/shut>pods/other"},
		{"what acts on a workload without pods", "deploy budget scale", "",
			"horizontalpodautoscalers/h poddisruptionbudgets/b deployments/web configmaps/settings| " +
				"deployments/web>configmaps/settings " +
				"poddisruptionbudgets/b>deployments/web horizontalpodautoscalers/h>deployments/web"},
		{"a CronJob before its first Job", "cron", "", "cronjobs/c secrets/key| cronjobs/c>secrets/key"},
		{"a CronJob and its Job", "cron job", "", "cronjobs/c jobs/j| cronjobs/c>jobs/j"},
		{"an owner of another kind", "custom", "", "lamps/red pods/red-0| lamps/red>pods/red-0"},
		{"what all pods use", "two1 two2", `{"about": ["configmaps./settings"]}`,
			"deployments/web pods/web-1 pods/web-2 persistentvolumeclaims/data configmaps/settings secrets/key " +
				"serviceaccounts/robot| deployments/web>pods/web-1 deployments/web>pods/web-2 " +
				"deployments/web=>persistentvolumeclaims/data deployments/web=>secrets/key deployments/web=>configmaps/settings " +
				"deployments/web=>serviceaccounts/robot"},
		{"many pods and claims", "r1 r2 r3 r4 r5 r6 r7", "",
			"statefulsets/r pods/*statefulsets.apps/r(7,bad) persistentvolumeclaims/*statefulsets.apps/r(7,) " +
				"configmaps/settings| statefulsets/r>pods/*statefulsets.apps/r " +
				"pods/*statefulsets.apps/r>persistentvolumeclaims/*statefulsets.apps/r " +
				"pods/*statefulsets.apps/r>configmaps/settings"},
		{"one of many", "r1 r2 r3 r4 r5 r6 r7 other", `{"about": ["persistentvolumeclaims./r-4"]}`,
			"statefulsets/r pods/*statefulsets.apps/r(7,bad) persistentvolumeclaims/*statefulsets.apps/r(7,) " +
				"configmaps/settings| statefulsets/r>pods/*statefulsets.apps/r " +
				"pods/*statefulsets.apps/r>persistentvolumeclaims/*statefulsets.apps/r " +
				"pods/*statefulsets.apps/r>configmaps/settings"},
		{"not the other app of a shared ConfigMap", "web deploy pod other", `{"about": ["services./web"]}`,
			"services/web deployments/web pods/web-1 persistentvolumeclaims/data configmaps/settings secrets/key " +
				"serviceaccounts/robot| deployments/web>pods/web-1 " +
				"pods/web-1>persistentvolumeclaims/data pods/web-1>secrets/key pods/web-1>configmaps/settings " +
				"pods/web-1>serviceaccounts/robot services/web>deployments/web"},
		{"both apps of a ConfigMap", "pod other", `{"about": ["configmaps./settings"]}`,
			"deployments/web pods/web-1 pods/other persistentvolumeclaims/data configmaps/settings secrets/key " +
				"serviceaccounts/robot| deployments/web>pods/web-1 " +
				"pods/web-1>persistentvolumeclaims/data pods/web-1>secrets/key pods/web-1>configmaps/settings " +
				"pods/web-1>serviceaccounts/robot pods/other>configmaps/settings"},
		{"nothing is known of it", "pod", `{"about": ["secrets./alone"]}`, "|"},
	} {
		var objects []string
		for _, name := range strings.Fields(c.objects) {
			objects = append(objects, all[name])
		}
		options := c.options
		if options == "" {
			options = "{}"
		}
		short := `(id) => id.replace(/^(\\w+)\\.[^/]*\\//, "$1/")`
		got := p.call("links.js", fmt.Sprintf(`linked([%s], %s)`, strings.Join(objects, ","), options))
		text := p.value(fmt.Sprintf(`(() => { const r = %s, short = %s; return r.boxes.map((b) => short(b.id) + `+
			`(b.missing ? "!" : "") + `+
			`(b.of ? "(" + b.of.length + "," + b.mood + ")" : "")).join(" ") + "|" + r.lines.map((l) => " " + short(l.from) `+
			`+ (l.shared ? "=>" : ">") + short(l.to)).join("") })()`,
			got, strings.ReplaceAll(short, `\\`, `\`)))
		if text != c.want {
			p.t.Errorf("%s:\ngot  %v\nwant %s", c.name, text, c.want)
		}
	}

	// A namespace of any size has a map of a limited one.
	if got := p.call("links.js", `linked(Array.from({length: 400}, (_, i) => ({kind: "services.", obj: {metadata: `+
		`{name: "s" + i}}}))).more`); got != "250" {
		p.t.Errorf("%s of 400 are left out", got)
	}
	if got := p.call("kinds.js", `steps([{reason: "SuccessfulRescale", message: "New size: 4; reason: x", `+
		`lastTimestamp: "2026-01-01T00:01:00Z"}, `+
		`{reason: "Other", message: "New size: 9"}, {reason: "SuccessfulRescale", message: "New size: 2; reason: x", `+
		`lastTimestamp: "2026-01-01T00:00:00Z"}]).map((p) => [p.at % 3600000, p.replicas])`); got != "[[0,2],[59999,2],[60000,4]]" {
		p.t.Errorf("steps of an autoscaler: %s", got)
	}
}

// app has everything that a map shows. Its ConfigMap does not exist.
const app = `apiVersion: v1
kind: Namespace
metadata: {name: app, labels: {team: a}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: door, namespace: app}
spec: {rules: [{host: shop.example.com, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: shop, port: {number: 80}}}}]}}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: app}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: app}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: app}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: web, image: "monopod.local/web:1", ports: [{containerPort: 8080}], envFrom: [{configMapRef: {name: settings}}], volumeMounts: [{name: data, mountPath: /data}]}
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: app}
spec:
  replicas: 7
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec: {containers: [{name: web, image: "monopod.local/web:1"}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: grows, namespace: app}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: shop}, minReplicas: 2, maxReplicas: 5, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: only-friends, namespace: app}
spec:
  podSelector: {matchLabels: {app: shop}}
  policyTypes: [Ingress, Egress]
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}, namespaceSelector: {matchLabels: {team: a}}}, {ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]
    ports: [{port: 5432}, {port: 8000, endPort: 8010, protocol: UDP}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: all, namespace: app}
spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{}]}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: app}
spec:
  schedule: 0 3 * * *
  timeZone: Asia/Tokyo
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: "monopod.local/web:1", args: [echo, done]}]}}}}
`

const appConfig = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: app}\ndata: {a: b}\n"

// onMap returns a JavaScript expression for the box whose title begins so.
func onMap(label string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".map a")].find((a) => `+
		`a.querySelector("title").textContent.startsWith(%q))`, label)
}

// maps: an app is a picture and a list, which lead on. The map follows changes.
func (p page) maps(b *box) {
	p.visit("#/create")
	p.put(".editor", app)
	p.press("main", "Check")
	p.press(".review", "Create all 10")
	p.press(".review", "Deployment shop")
	p.press(".tabs", "Map")
	p.sees(`%s && %s && %s?.dataset.mood === "bad" && %s`, onMap("Ingress door"), onMap("Service shop"), onMap("ConfigMap settings, does not exist"),
		onMap("HorizontalPodAutoscaler grows"))
	p.sees(`%s && %s && !%s && document.querySelectorAll(".map .lines path").length >= 9`, onMap("PersistentVolumeClaim data"), onMap("NetworkPolicy only-friends"), onMap("Deployment many"))
	p.sees(`%s?.getAttribute("aria-current") === "true"`, onMap("Deployment shop"))
	p.sees(`[".map a", ".map ~ details a"].every((q) => new Set([...document.querySelectorAll(q)].map((a) => ` +
		`a.getAttribute("href"))).size === 10)`)

	p.apply(appConfig, "ConfigMap settings")
	p.press(".tabs", "Map")
	p.sees(`%s?.dataset.mood === "ok" && %s && !%s`, onMap("Deployment shop, 2/2 ready"), onMap("ConfigMap settings"), onMap("ConfigMap settings, does"))
	p.value(onMap("Pod shop-") + `.focus() || true`)
	p.key("\r")
	p.sees(`location.hash.startsWith("#/pods/app/shop-") && %s?.startsWith("shop-")`, text("#title"))
	p.press(".tabs", "Map")
	p.sees(`%s?.getAttribute("aria-current") === "true" && %s`, onMap("Pod shop-"), onMap("Ingress door"))

	p.visit("#/namespaces/-/app/map")
	p.sees(`%s && %s`, onMap("Pods 7 pods, all ready"), onMap("CronJob nightly"))
	p.sees(`%s?.getAttribute("href").includes("label%%3Aapp%%3Dmany")`, onMap("Pods 7 pods"))

	// Those who may see less see less, and that.
	p.click("#sign-out")
	p.enter(b.view)
	p.visit("#/services/app/shop/map")
	p.sees(`%s?.includes("you may not list them: Secrets") && %s`, text(".map + .hint"), onMap("Deployment shop"))
	p.visit("#/serviceaccounts/app/default")
	p.sees(`document.querySelector("[data-section=Permissions]")?.hidden`)
	p.click("#sign-out")
	p.enter(b.token)
}

// tells: NetworkPolicies, CronJobs, claims, roles and autoscalers say what they mean for others.
func (p page) tells(b *box) {
	p.visit("#/networkpolicies.networking.k8s.io/app/only-friends")
	p.sees(`%s?.includes("from pods app=web in namespaces team=a or addresses 10.0.0.0/8 except 10.1.0.0/16, TCP port `+
		`5432 or UDP ports 8000 to 8010") && `+
		`%[1]s.includes("Everything else to these pods is closed.") && %[1]s.includes("Everything from these pods is `+
		`closed.")`, text("[data-section=Allows]"))
	p.sees(`document.querySelector("[data-section=Allows] a[href*='label%%3Aapp%%3Dweb']") && ` +
		`document.querySelectorAll("[data-section='Selected pods'] tbody tr").length === 2`)
	p.sees(`%s?.includes("all selects 2 of them, and limits: Ingress")`, text("[data-section='Other policies of these "+
		"pods']"))
	p.press("[data-section='Other policies of these pods']", "all")
	p.sees(`%s?.includes("Everything may reach these pods.") && %[1]s.includes("does not limit what these pods reach")`, text("[data-section=Allows]"))

	p.visit("#/cronjobs.batch/app/nightly")
	p.sees(`document.querySelectorAll("[data-section='Next runs'] li").length === 5 && /3:00:00.AM GMT\+9 · due in `+
		`\d+[hm]/.test(%s)`, text("[data-section='Next runs']"))
	p.press(".bar", "Suspend")
	p.sees(`%s?.includes("It is suspended")`, text("[data-section='Next runs']"))

	// The fake runtime measures no volumes: the summary is one of a node with containerd.
	p.load(b.address + "/?claim#/configmaps")
	p.sees(rows + ` > 1`)
	p.value(`{
		const fetched = window.fetch, volume = {pvcRef: {namespace: "app", name: "data"}, capacityBytes: 4 * 2 ** 30, usedBytes: 2 ** 30, availableBytes: 3 * 2 ** 30};
		window.fetch = (path, options) => (path.includes("/proxy/stats/summary") ? Promise.resolve(new Response(JSON.stringify({pods: [{volume: [{}, volume]}]}))) : fetched(path, options));
		true
	}`)
	p.visit("#/persistentvolumeclaims/app/data")
	p.sees(`document.querySelectorAll("[data-section=Use] a[href^='#/pods/app/shop-']").length === 2`)
	p.sees(`%s?.includes("1.0 GiB of 4.0 GiB, 3.0 GiB free") && %[1]s.includes("figures of the whole file system") && `+
		`document.querySelector("[data-section=Use] meter").value === 2 ** 30`,
		text("[data-section=Use]"))

	p.visit("#/horizontalpodautoscalers.autoscaling/app/grows")
	p.sees(`document.querySelector("[data-section=Replicas] svg[aria-label^='Replicas: 2 now']")`)

	p.visit("#/roles.rbac.authorization.k8s.io/whole/reader")
	p.sees(`%s?.includes("<b>jane</b>\tUser\twhole\trobots") && document.querySelector("[data-section='Who has it in a `+
		`namespace'] a[href='#/serviceaccounts/whole/robot']")`,
		text("[data-section='Who has it in a namespace']"))
	p.press("[data-section='Who has it in a namespace']", "robots")
	p.put("[data-section=Permissions] select", "1")
	p.press("[data-section=Permissions]", "Show what it may do")
	p.sees(`%s?.includes("pods, pods/log\tcore\tget, list\tone")`, text("[data-section=Permissions] table"))
	p.put("[data-section=Permissions] input", "default")
	p.press("[data-section=Permissions]", "Show what it may do")
	p.sees(`%s?.includes("selfsubject") && !%[1]s.includes("pods/log")`, text("[data-section=Permissions] table"))

	// A group is asked as a user who is only its member.
	p.visit("#/clusterrolebindings.rbac.authorization.k8s.io/-/cluster-admin")
	p.sees(`%s === "cluster-admin"`, text("#title"))
	p.press("[data-section=Permissions]", "Show what it may do")
	p.sees(`%s?.includes("*\t*\t*")`, text("[data-section=Permissions] table"))
	p.visit("#/clusterroles.rbac.authorization.k8s.io/-/cluster-admin")
	p.sees(`%s?.includes("system:masters\tGroup\tall\tcluster-admin")`, text("[data-section='Who has it everywhere']"))

	// Later steps count pods.
	p.visit("#/namespaces/-/app")
	p.sees(`%s === "app"`, text("#title"))
	p.press(".bar", "Delete")
	p.press("dialog", "Delete")
	p.visit("#/pods?ns=app")
	p.sees(`%s === "No pods in app."`, text(".empty"))
	p.visit("#/pods?ns=")
}
