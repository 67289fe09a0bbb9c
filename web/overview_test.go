package web_test

import "strings"

// firstSteps: one lands on an overview, which in an empty cluster says what to do first.
func (p page) firstSteps(*box) {
	p.sees(`%s === "Overview" && document.querySelector("#nav [data-word=overview][aria-current]")`, text("#title"))
	p.sees(`%s?.includes("Nothing is known to be wrong")`, text(".overview"))
	p.sees(`%s?.includes("ready")`, text("[aria-label=greenhouse-01]"))
	p.sees(`document.querySelectorAll("[aria-label=greenhouse-01] svg").length >= 2`)
	p.sees(`/all passed/.test(%s) && /one file, [\d.]+ .iB/.test(%[1]s) && /the first one ends in/.test(%[1]s)`,
		text("[data-section=Server]"))
	p.press("[aria-label='First steps']", "Create a Deployment")
	p.sees(`document.querySelector(".editor")?.value.startsWith("apiVersion: apps/v1")`)
	p.press("main", "Check")
	p.sees(`%s?.includes("would be created")`, text(".review"))
	p.key("o")
	p.sees(`%s === "Overview"`, text("#title"))
}

// overview: what is wrong comes first, with its sentence, what to do and the way there. What changed lately follows.
func (p page) overview(*box) {
	const shop = "[aria-label='Pod shop']"
	p.visit("#/")
	p.sees(`%s?.includes("exit code 3") && %[1]s.includes("What to do:")`, text(shop))
	p.sees(`%s?.includes("running")`, text("[data-section='What is wrong']"))
	p.sees(`%s?.includes("BackOff")`, text("[data-section=Warnings]"))
	p.sees(`%s?.includes("Scaled up replica set")`, text("[data-section=Lately]"))
	p.value(`document.querySelector("[aria-label='Pod shop'] summary").click() || true`)
	p.sees(`document.querySelector("[aria-label='Pod shop'] details").open`)
	p.press(shop, "Pod shop")
	p.sees(`location.hash === "#/pods/default/shop" && document.querySelector("[data-section=Why] details").open`)

	// The list knows the same: a reason, by which it is filtered.
	p.visit("#/pods")
	p.sees(`%s?.startsWith("container app, ")`, cell("shop", ".c-reason"))
	p.sees(`%s?.querySelector("[data-mood=bad]")`, row("shop"))
	p.put("#filter", "container app,")
	p.sees(rows + ` === 1`)
	p.put("#filter", "")

	// Every object says why, also one without a status.
	p.visit("#/configmaps/default/kube-root-ca.crt")
	p.sees(`%s === "Nothing is known to be wrong with ConfigMap kube-root-ca.crt."`, text(".why .sentence"))
}

// rollouts that are stuck are not green.
func (p page) stuck(*box) {
	p.edit("#/deployments.apps/default/web", "image: monopod.local/web:1", "image: monopod.local/Web:1")
	p.visit("#/deployments.apps/default/web")
	p.sees(`document.querySelector(".state [data-mood=bad]")`)
	p.visit("#/pods?q=label%3Aapp%3Dweb")
	p.sees(`document.querySelectorAll("tbody [data-mood=bad]").length === 1 && ` +
		`document.querySelector("td.c-reason:not(:empty)")`)
	p.visit("#/deployments.apps/default/web/revisions")
	p.press(".body", "Return to revision 3")
	p.press("dialog", "Return")
	p.visit("#/deployments.apps/default/web")
	p.sees(`%s === "2/2 ready" && document.querySelector(".state [data-mood=ok]")`, text(".state"))
}

// busy uses CPU and memory.
const busy = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: busy, namespace: default}\nspec:\n" +
	"  selector: {matchLabels: {app: busy}}\n  template:\n    metadata: {labels: {app: busy}}\n    spec:\n" +
	"      containers:\n      - {name: web, image: \"monopod.local/web:1\", args: [load, \"150\"], " +
	"resources: {requests: {cpu: 10m}, limits: {memory: 1Gi}}}\n"

// use: what pods use is in their list, and as graphs on the pages of pods, workloads and namespaces.
func (p page) use(*box) {
	p.apply(busy, "Deployment busy")
	p.sees(`document.querySelectorAll("[data-section=Use] svg").length === 2`)
	p.visit("#/namespaces/-/default")
	p.sees(`document.querySelectorAll("[data-section=Use] svg").length === 2`)
	p.visit("#/pods?q=label%3Aapp%3Dbusy")
	p.sees(`/^1[0-9][0-9]m$/.test(document.querySelector("td.c-cpu")?.innerText)`)
	p.sees(`document.querySelector("td.c-cpu").title === "requests 10m, limits nothing"`)
	p.sees(`document.querySelector("td.c-memory").title === "requests 1.0 GiB, limits 1.0 GiB"`)
	p.press("thead", "CPU")
	p.sees(`location.hash.includes("sort=CPU")`)
	p.visit("#/nodes")
	p.sees(`/^\d+m$/.test(%s)`, cell("greenhouse-01", "td.c-cpu"))
	p.visit("#/deployments.apps/default/busy")
	p.press(".bar", "Delete")
	p.press("dialog", "Delete")
	p.visit("#/pods?q=label%3Aapp%3Dbusy")
	p.sees(`%s === "No pods."`, text(".empty"))
}

// several: rows are selected, with the mouse or the keyboard, and scaled, restarted or deleted together. Events are
// limited to Warnings.
func (p page) several(*box) {
	p.visit("#/create")
	p.put(".editor", strings.ReplaceAll(busy, "busy", "first")+"---\n"+strings.ReplaceAll(busy, "busy", "second"))
	p.press("main", "Check")
	p.press(".review", "Create all 2")
	p.press(".review", "Deployment second")
	p.visit("#/deployments.apps")
	p.sees(`%s && %s`, row("first"), row("second"))
	p.value(row("first") + `.querySelector("input").click() || true`)
	p.value(row("second") + `.querySelector("a").focus() || true`)
	p.key("x")
	p.sees(`%s?.includes("2 selected")`, text(".chosen"))
	p.press(".chosen", "Scale")
	p.put("dialog [name=replicas]", "2")
	p.press("dialog", "Scale")
	p.sees(`!document.querySelector("dialog") && %s === "2/2" && %s === "2/2"`, cell("first", ".c-ready"),
		cell("second", ".c-ready"))
	p.press(".chosen", "Delete")
	p.sees(`%s === "first, second"`, text("dialog .what"))
	p.press("dialog", "Delete")
	p.sees(`!%s && !%s && %s === ""`, row("first"), row("second"), text(".chosen"))

	p.visit("#/events")
	p.click("#warnings")
	p.sees(rows + ` > 0 && [...document.querySelectorAll("td.c-type")].every((c) => c.innerText === "Warning")`)
	p.sees(`location.hash.includes("type%%3DWarning")`)
	p.click("#warnings")
	p.sees(`[...document.querySelectorAll("td.c-type")].some((c) => c.innerText === "Normal")`)
}

// whole is a file whose documents need each other, in an order that kubectl refuses.
const whole = `apiVersion: example.com/v1
kind: Lamp
metadata: {name: red, namespace: whole}
spec: {watts: 5}
---
# comments are no documents
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: whole
data: {color: red}
---
apiVersion: v1
kind: Namespace
metadata: {name: whole}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lamps.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Lamp, plural: lamps}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {watts: {type: integer, maximum: 60}}}
          status:
            type: object
            properties:
              conditions: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
`

// wholeFiles: a file may use what it creates itself, and an error leads to its line.
func (p page) wholeFiles(*box) {
	p.visit("#/create")
	p.put(".editor", whole)
	p.press("main", "Check")
	p.sees(`(%s?.match(/would be created/g) ?? []).length === 3 && %[1]s.includes("Lamp red can be checked when its kind `+
		`has been created")`, text(".review"))
	p.press(".review", "Create all 4")
	p.sees(`(%s.match(/ created/g) ?? []).length === 4`, text(".review"))
	p.press(".review", "Lamp red")
	p.sees(`%s === "red"`, text("#title"))

	// Errors: in a field, and in the text. Files of a folder come by name.
	p.visit("#/create")
	p.put(".editor", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}\n---\napiVersion: example.com/v1\nkind: "+
		"Lamp\n"+
		"metadata:\n  name: blue\n  namespace: whole\nspec:\n  watts: 100\n")
	p.press("main", "Check")
	p.sees(`%s?.includes("1 of 2 are refused")`, text(".review"))
	p.press(".review", "Line 11")
	p.sees(`getSelection().toString() === "  watts: 100"`)

	// The schema of a custom kind is known, too.
	p.types("apiVersion: example.com/v1\nkind: Lamp\nmetadata: {name: blue}\nspec:\n  volts: 1\n  ", "wa")
	p.sees(`%s === "watts"`, offered)
	p.sees(`%s === "Line 5: Lamp has no field spec.volts."`, text(".editor ~ [role=status]"))
	p.value(`{
		const files = new DataTransfer();
		files.items.add(new File(["apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\n"], "b.yaml"));
		files.items.add(new File(["apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"], "a.yaml"));
		document.querySelector(".drop").dispatchEvent(new DragEvent("drop", {dataTransfer: files, bubbles: true, cancelable: true}));
		true
	}`)
	p.sees(`document.querySelectorAll(".review li").length === 2 && ` +
		`document.querySelector(".editor").value.startsWith("# ")`)
}

// spoken are objects of kinds that say more than their conditions.
const spoken = `apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: door, namespace: whole}
spec:
  rules:
  - host: shop.example.com
    http:
      paths:
      - {path: /cart, pathType: Prefix, backend: {service: {name: cart, port: {number: 80}}}}
  tls: [{hosts: [shop.example.com], secretName: shop-tls}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: whole}
rules:
- {apiGroups: [""], resources: [pods, pods/log], verbs: [get, list], resourceNames: [one]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: robots, namespace: whole}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: robot, namespace: whole}
- {kind: User, name: "<b>jane</b>", apiGroup: rbac.authorization.k8s.io}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: whole}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: whole}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: few, namespace: whole}
spec: {hard: {configmaps: "4"}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: grows, namespace: whole}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  minReplicas: 2
  maxReplicas: 5
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 70}}}]
`

// says: the pages of kinds show what their objects mean, with links.
func (p page) says(*box) {
	p.visit("#/create")
	p.put(".editor", spoken)
	p.press("main", "Check")
	p.press(".review", "Create all 7")
	p.press(".review", "Ingress door")
	for _, c := range []struct{ hash, section, want, link string }{
		{"#/ingresses.networking.k8s.io/whole/door", "Rules", "shop.example.com/cart\tPrefix\tcart:80", "#/services/whole/cart"},
		{"#/ingresses.networking.k8s.io/whole/door", "TLS", "shop-tls", "#/secrets/whole/shop-tls"},
		{"#/roles.rbac.authorization.k8s.io/whole/reader", "Rules", "pods, pods/log\tcore\tget, list\tone", ""},
		{"#/rolebindings.rbac.authorization.k8s.io/whole/robots", "Binding", "<b>jane</b>", "#/serviceaccounts/whole/robot"},
		{"#/rolebindings.rbac.authorization.k8s.io/whole/robots", "Binding", "Role reader",
			"#/roles.rbac.authorization.k8s.io/whole/reader"},
		{"#/persistentvolumeclaims/whole/data", "Claim", "requested 1Gi", "#/storageclasses.storage.k8s.io/-/standard"},
		{"#/resourcequotas/whole/few", "Quota", "configmaps\t2\t4\t 50 %", ""},
		{"#/horizontalpodautoscalers.autoscaling/whole/grows", "Scaling", "between 2 and 5", "#/deployments.apps/whole/shop"},
		{"#/horizontalpodautoscalers.autoscaling/whole/grows", "Scaling", "cpu\tunknown\t70 %", ""},
		{"#/customresourcedefinitions.apiextensions.k8s.io/-/lamps.example.com", "Definition", "watts integer",
			"#/lamps.example.com"},
	} {
		p.visit(c.hash)
		p.sees(`%s?.includes(%q)`, text("[data-section="+c.section+"]"), c.want)
		if c.link != "" {
			p.sees(`document.querySelector("[data-section=%s] a[href='%s']")`, c.section, c.link)
		}
	}
	p.visit("#/serviceaccounts/whole/robot")
	p.press("[data-section=Permissions]", "Show what it may do")
	p.sees(`%s?.includes("pods, pods/log\tcore\tget, list\tone")`, text("[data-section=Permissions]"))
}
