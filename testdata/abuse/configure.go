package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"time"

	"monopod/testdata/abuse/hostile"
)

// configuration is a set of objects that an administrator creates for a moment, and of requests that they affect.
type configuration struct {
	objects []object
	uses    []use
	wait    time.Duration // before each use
}

// object is an object in a collection. Its body is the JSON without metadata.
type object struct{ collection, name, body string }

// use is a request.
type use struct{ method, path, contentType, accept, body string }

// selector selects all objects of configurations, for cleanUp.
const selector = "?labelSelector=abuse%3Dconfiguration"

// The collections that contain objects of configurations.
const (
	definitions   = hostile.DefinitionsPath
	registrations = "/apis/admissionregistration.k8s.io/v1/"
	flows         = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	apiServices   = "/apis/apiregistration.k8s.io/v1/apiservices"
	bundles       = "/apis/certificates.k8s.io/v1/clustertrustbundles"
	networks      = "/apis/networking.k8s.io/v1/"
	scalers       = "/apis/autoscaling/v2/namespaces/" + namespace + "/horizontalpodautoscalers"
	deployments   = "/apis/apps/v1/namespaces/" + namespace + "/deployments"
	nsNetworks    = networks + "namespaces/" + namespace + "/"
)

// configured lists the cluster-scoped collections that cleanUp empties. Other objects are deleted with the namespace.
var configured = []string{
	definitions, registrations + "validatingwebhookconfigurations", registrations + "mutatingwebhookconfigurations",
	registrations + "validatingadmissionpolicies", registrations + "validatingadmissionpolicybindings",
	registrations + "mutatingadmissionpolicies", registrations + "mutatingadmissionpolicybindings",
	flows + "flowschemas", flows + "prioritylevelconfigurations", apiServices, bundles, networks + "ingressclasses",
}

// configure creates a configuration, uses it, changes it, and removes it.
func (a *abuser) configure(ctx context.Context) {
	name := fmt.Sprintf("cfg-%x", a.rand.Uint32())
	c := one(a, a.customKind, a.webhook, a.validating, a.mutating, a.aggregated, a.flow, a.trust, a.scaled, a.network)(
		name)
	admin := a.users[0]
	for _, o := range c.objects {
		body := fmt.Appendf(nil, `{"metadata":{"name":%q,"labels":{"abuse":"configuration"}},%s}`, o.name, o.body)
		a.send(ctx, admin, "POST", o.collection, "application/json", body)
	}
	for range 2 + a.rand.IntN(8) {
		if c.wait > 0 && sleep(ctx, c.wait) != nil {
			break
		}
		u := one(a, c.uses...)
		a.sendAccepting(ctx, one(a, admin, a.users[1], a.users[1], a.users[2], a.user()), u)
	}
	last := c.objects[len(c.objects)-1]
	if a.rand.IntN(3) == 0 {
		a.send(ctx, admin, one(a, "PATCH", "PUT"), last.collection+"/"+last.name+one(a, "", "/status"), one(a, contents...),
			[]byte(one(a, bodies...)))
	}
	// Delete the objects also after the end of ctx.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	for _, o := range c.objects {
		a.send(ctx, admin, "DELETE", o.collection+"/"+o.name, "", nil)
	}
}

// sendAccepting sends a request with its Accept header, and records the response. It gives up after 10 s.
func (a *abuser) sendAccepting(ctx context.Context, u user, r use) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	code, data, err := a.server.ask(ctx, u, r)
	if err != nil {
		a.heard.dropped()
		return
	}
	a.heard.add(fmt.Sprintf("%s %s %s accepting %s as %s with %.200q", r.method, r.path, r.contentType, r.accept, u.name,
		r.body), code, string(data))
}

// about returns requests for a collection and an object in it.
func about(a *abuser, collection, apiVersion, kind, name, spec string) []use {
	const js = "application/json"
	body := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":{"abuse":%q}},%s}`, apiVersion, kind,
		"o", name, spec)
	each := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"generateName":"o-","labels":{"abuse":%q}},%s}`,
		apiVersion, kind, name, spec)
	return []use{
		{"POST", collection, js, "", body}, {"POST", collection, js, one(a, accepts...), each},
		{"POST", collection + "?dryRun=All", js, "", each},
		{"GET", collection, "", one(a, accepts...), ""}, {"GET", collection + "?limit=1", "", one(a, accepts...), ""},
		{"GET", collection + "/o", "", one(a, accepts...), ""},
		{"GET", collection + "?watch=1&timeoutSeconds=1&resourceVersion=0", "", one(a, accepts...), ""},
		{"GET", collection +
			"?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", "",
			one(a, accepts...), ""},
		{"PUT", collection + "/o", js, "", body},
		{"PATCH", collection + "/o?fieldManager=m&force=true", "application/apply-patch+yaml", "", body},
		{"PATCH", collection + "/o" + one(a, "", "/status", "/scale"), "application/merge-patch+json", one(a, accepts...),
			fmt.Sprintf(`{"metadata":{"annotations":{"x":"%x"}}}`, a.rand.Uint32())},
		{"DELETE", collection + "/o", "", "", ""}, {"DELETE", collection + "?labelSelector=abuse%3D" + name, "", "", ""},
	}
}

// client returns the clientConfig of a webhook.
func (a *abuser) client(manner string) string {
	other := a.server.adversary
	return fmt.Sprintf(`{"url":%q,"caBundle":%q}`, other.url+"/"+manner, base64.StdEncoding.EncodeToString(other.ca))
}

// customKind returns a custom kind with two versions and a conversion webhook.
func (a *abuser) customKind(name string) configuration {
	const schema = `"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object",` +
		`"x-kubernetes-preserve-unknown-fields":true,"properties":{"n":{"type":"integer","default":1}},` +
		`"x-kubernetes-validations":[{"rule":"self.n < 100"},{"rule":"!has(oldSelf.n) || self.n >= ` +
		`oldSelf.n"}]},"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}},` +
		`"subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}},` +
		`"additionalPrinterColumns":[{"name":"N","type":"integer","jsonPath":".spec.n"},{"name":"Age","type":"date",` +
		`"jsonPath":".metadata.creationTimestamp"}]`
	conversion := `{"strategy":"None"}`
	if a.rand.IntN(5) > 0 {
		conversion = `{"strategy":"Webhook","webhook":{"clientConfig":` + a.client(one(a, manners...)) +
			`,"conversionReviewVersions":["v1"]}}`
	}
	body := fmt.Sprintf(
		`"spec":{"group":"abuse.io","scope":"Namespaced","names":{"plural":%q,"kind":"Cfg%s","listKind":"Cfg%[2]sList"},`+
			`"conversion":%s,"versions":[{"name":"v1","served":true,"storage":true,%s},{"name":"v2","served":true,`+
			`"storage":false,%[4]s}]}`,
		name, strings.TrimPrefix(name, "cfg-"), conversion, schema)
	kind := "Cfg" + strings.TrimPrefix(name, "cfg-")
	c := configuration{objects: []object{{definitions, name + ".abuse.io", body}}, wait: 20 * time.Millisecond}
	for _, version := range []string{"v1", "v2"} {
		collection := "/apis/abuse.io/" + version + "/namespaces/" + namespace + "/" + name
		c.uses = append(c.uses,
			about(a, collection, "abuse.io/"+version, kind, name, `"spec":{"n":`+one(a, "1", "99", "100", `"x"`, "null")+
				`,"list":[`+strings.Repeat(`{"a":1},`, a.rand.IntN(1000))+`{}]}`)...)
	}
	c.uses = append(c.uses, use{"GET", "/openapi/v3/apis/abuse.io/v2", "", "", ""},
		use{"GET", "/apis", "", one(a, accepts...), ""}, use{"GET", "/apis/abuse.io/v2", "", one(a, accepts...), ""})
	return c
}

// matching returns rules and selectors that match the objects of admitted.
func matching(name string) (rules, selectors string) {
	return `[{"apiGroups":["","abuse.io"],"apiVersions":["*"],"operations":["*"],"resources":["configmaps",` +
			`"configmaps/*","things","pods"]}]`,
		`"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"` + namespace +
			`"}},"objectSelector":{"matchLabels":{"abuse":"` + name + `"}}`
}

// admitted returns requests that match.
func (a *abuser) admitted(name string) []use {
	return append(
		about(a, nsPath+"/configmaps", "v1", "ConfigMap", name, `"data":{"k":"`+strings.Repeat("v", a.rand.IntN(3000))+`"}`),
		about(a, "/apis/abuse.io/v1/namespaces/"+namespace+"/things", "abuse.io/v1", "Thing", name,
			`"spec":{"color":"red","set":["a","b"],"map":{"a":"b"}}`)...)
}

// webhook returns a validating or mutating webhook.
func (a *abuser) webhook(name string) configuration {
	rules, selectors := matching(name)
	condition := one(a, "", "", `"matchConditions":[{"name":"c","expression":"object.metadata.name != 'x'"}],`,
		`"matchConditions":[{"name":"c","expression":"object.data.none == 'x'"}],`)
	body := fmt.Sprintf(
		`"webhooks":[{"name":"a.abuse.io","clientConfig":%s,"rules":%s,%s,%s"sideEffects":"None","timeoutSeconds":1,`+
			`"admissionReviewVersions":["v1"],"failurePolicy":%q}]`,
		a.client(one(a, manners...)), rules, selectors, condition, one(a, "Fail", "Ignore"))
	return configuration{objects: []object{{registrations + one(a, "validating", "mutating") + "webhookconfigurations",
		name, body}}, uses: a.admitted(name), wait: 20 * time.Millisecond}
}

// expressions are valid, invalid and expensive CEL expressions.
var expressions = []string{
	"true", "object.metadata.name.size() > 0", "object.data.none == 'x'", "1 / 0 == 1", "dyn(object).x.y.z",
	"variables.v > 1", "variables.w", "params.data.k == 'v'",
	"[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, " +
		"[1,2,3,4,5,6,7,8,9].all(e, [1,2,3,4,5,6,7,8,9].all(f, [1,2,3,4,5,6,7,8,9].all(g, a+b+c+d+e+f+g > 0)))))))",
	"object.metadata.labels.all(k, object.metadata.labels.all(l, k.matches('(a*)*b') || l.size() > 0))",
	"authorizer.group('').resource('pods').namespace('abuse').check('get').allowed()",
	"[1,2,3].map(a, [1,2,3].map(b, 'x'.replace('x', 'xxxxxxxxxx').replace('x', 'xxxxxxxxxx').replace('x', " +
		"'xxxxxxxxxx'))).size() > 0",
	"quantity('1e99999999').isGreaterThan(quantity('1'))",
	"object.data.k.replace('', object.data.k).replace('', object.data.k).size() > 0",
	"'%.1000000000f'.format([1.0]).size() > 0",
	"lists.range(1000000).distinct().size() > 0", "lists.range(100).map(i, lists.range(100000)).size() > 0",
	"sets.contains(lists.range(100000), lists.range(100000))",
	"lists.range(1000).map(i, 'x').join(object.data.k).size() > 0",
	"url('http://[').getHost() == ''", "string(object).size() > 0", "oldObject == object",
	"namespaceObject.metadata.name == 'abuse'", "request.userInfo.username.startsWith('x')", "(((",
	"lists.range(100000).all(i, lists.range(100000).all(j, i + j > 0))", "format.dns1123Label().validate('a').hasValue()",
	"'%s'.format([object]).size() > 0", "ip('1.2.3.4').family() == 4", "sets.contains([1], [2])",
}

// validating returns a ValidatingAdmissionPolicy.
func (a *abuser) validating(name string) configuration {
	rules, selectors := matching(name)
	body := fmt.Sprintf(
		`"spec":{"failurePolicy":%q,%s"matchConstraints":{"resourceRules":%s,%s},"variables":[{"name":"v",`+
			`"expression":"object.metadata.labels.size()"},{"name":"w","expression":"variables.v > 0 && `+
			`%s"}],"validations":[{"expression":%q,"messageExpression":"'bad: ' + `+
			`string(object.metadata.name)"},{"expression":%q}],"auditAnnotations":[{"key":"a",`+
			`"valueExpression":"string(object.metadata.name)"}]}`,
		one(a, "Fail", "Ignore"), one(a, "", `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`), rules, selectors,
		one(a, "true", "1 > 0", "variables.v > 2"), one(a, expressions...), one(a, expressions...))
	return a.policy(name, "validating", body, one(a, `["Deny"]`, `["Warn","Audit"]`, `["Audit"]`))
}

// mutations enlarge objects, change immutable fields, or fail.
var mutations = []string{
	`{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: ` +
		`{\"x\": \"y\"}}}"}}`,
	`{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{name: ` +
		`\"other\"}}"}}`,
	`{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{data: {\"k\": object.data.k + ` +
		`object.data.k}}"}}`,
	`{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{spec: Object.spec{set: [\"a\", ` +
		`\"a\"], items: [Object.spec.items{}]}}"}}`,
	`{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"add\", path: \"/data/k\", ` +
		`value: object.data.k + \"x\"}]"}}`,
	`{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"remove\", path: \"/metadata\"}]"}}`,
	`{"patchType":"JSONPatch","jsonPatch":{"expression":"lists.range(9000).map(i, JSONPatch{op: \"copy\", ` +
		`from: \"/data\", path: \"/data/k\"})"}}`,
	`{"patchType":"JSONPatch","jsonPatch":{"expression":"lists.range(9000).map(i, JSONPatch{op: \"add\", ` +
		`path: \"/metadata/annotations/\" + string(i), value: \"xxxxxxxxxxxxxxxxxxxxxxxx\"})"}}`,
	`{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"replace\", path: \"\", value: dyn([])}]"}}`,
	`{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"test\", path: \"/kind\", value: 1}, ` +
		`JSONPatch{op: \"add\", path: \"/metadata/finalizers\", value: [jsonpatch.escapeKey(\"a/b\")]}]"}}`,
	`{"patchType":"JSONPatch","jsonPatch":{"expression":"1"}}`, `{"patchType":"JSONPatch"}`, `{}`,
}

// mutating returns a MutatingAdmissionPolicy.
func (a *abuser) mutating(name string) configuration {
	rules, selectors := matching(name)
	body := fmt.Sprintf(
		`"spec":{"failurePolicy":%q,"reinvocationPolicy":%q,"matchConstraints":{"resourceRules":%s,%s},`+
			`"matchConditions":[{"name":"c","expression":%q}],"mutations":[%s,%s]}`,
		one(a, "Fail", "Ignore"), one(a, "Never", "IfNeeded"),
		strings.Replace(rules, `["*"],"resources"`, `["CREATE","UPDATE"],"resources"`, 1), selectors,
		one(a, "true", one(a, expressions...)), one(a, mutations...), one(a, mutations...))
	return a.policy(name, "mutating", body, "")
}

// policy returns an admission policy with its binding.
func (a *abuser) policy(name, how, body, actions string) configuration {
	binding := fmt.Sprintf(`"spec":{"policyName":%q%s}`, name,
		one(a, "", `,"paramRef":{"name":"target","namespace":"abuse","parameterNotFoundAction":"Deny"}`,
			`,"paramRef":{"selector":{},"parameterNotFoundAction":"Allow"}`))
	if actions != "" {
		binding = strings.TrimSuffix(binding, "}") + `,"validationActions":` + actions + `}`
	}
	return configuration{
		objects: []object{{registrations + how + "admissionpolicies", name, body},
			{registrations + how + "admissionpolicybindings", name, binding}},
		uses: a.admitted(name), wait: 20 * time.Millisecond,
	}
}

// aggregated returns an APIService that the adversary serves.
func (a *abuser) aggregated(name string) configuration {
	group := one(a, manners...) + "-" + name + ".abuse.io"
	body := fmt.Sprintf(
		`"spec":{"group":%q,"version":"v1","groupPriorityMinimum":%d,"versionPriority":10,"insecureSkipTLSVerify":true,`+
			`"service":{"namespace":"abuse","name":"adversary","port":%s}}`, group, 1+a.rand.IntN(20000),
		a.server.adversary.port)
	collection := "/apis/" + group + "/v1/namespaces/" + namespace + "/things"
	uses := append(about(a, collection, group+"/v1", "Thing", name, `"spec":{}`),
		use{"GET", "/apis", "", one(a, accepts...), ""}, use{"GET", "/apis/" + group, "", one(a, accepts...), ""},
		use{"GET", "/apis/" + group + "/v1", "", one(a, accepts...), ""},
		use{"GET", "/openapi/v3", "", "", ""}, use{"GET", "/openapi/v3/apis/" + group + "/v1", "", "", ""},
		use{"GET", apiServices, "", one(a, accepts...), ""})
	return configuration{wait: 100 * time.Millisecond, uses: uses, objects: []object{
		{nsPath + "/services", "adversary", `"spec":{"type":"ExternalName","externalName":"localhost"}`},
		{apiServices, "v1." + group, body},
	}}
}

// flow returns a FlowSchema for one user, with its own PriorityLevelConfiguration.
func (a *abuser) flow(name string) configuration {
	level := fmt.Sprintf(
		`"spec":{"type":%q,"limited":{"nominalConcurrencyShares":%d,"lendablePercent":%d,"limitResponse":%s}}`,
		one(a, "Limited", "Limited", "Exempt"), a.rand.IntN(3), a.rand.IntN(120),
		one(a, `{"type":"Reject"}`, `{"type":"Queue","queuing":{"queues":1,"handSize":1,"queueLengthLimit":1}}`,
			`{"type":"Queue","queuing":{"queues":64,"handSize":8,"queueLengthLimit":50}}`,
			`{"type":"Queue","queuing":{"queues":10000000,"handSize":10000000,"queueLengthLimit":2000000000}}`))
	schema := fmt.Sprintf(
		`"spec":{"matchingPrecedence":%d,"priorityLevelConfiguration":{"name":%q},`+
			`%s"rules":[{"subjects":[{"kind":"ServiceAccount","serviceAccount":{"namespace":"abuse","name":"other"}}],`+
			`"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}`,
		1+a.rand.IntN(10000), name, one(a, "", `"distinguisherMethod":{"type":"ByUser"},`,
			`"distinguisherMethod":{"type":"ByNamespace"},`))
	return configuration{objects: []object{{flows + "prioritylevelconfigurations", name, level},
		{flows + "flowschemas", name, schema}},
		uses: append(a.admitted(name), use{"GET", "/debug/api_priority_and_fairness/dump_priority_levels", "", "", ""},
			use{"GET", flows + "flowschemas", "", one(a, accepts...), ""})}
}

// trust returns a ClusterTrustBundle and a pod that mounts it.
func (a *abuser) trust(name string) configuration {
	certificate := string(a.server.adversary.ca)
	body := fmt.Sprintf(`"spec":{%s"trustBundle":%q}`, one(a, "", `"signerName":"abuse.io/x",`),
		one(a, certificate, strings.Repeat(certificate, 500), "x",
			"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ""))
	pod := fmt.Sprintf(
		`"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"monopod.local/web:1",`+
			`"volumeMounts":[{"name":"v","mountPath":"/v"}]}],"volumes":[{"name":"v",`+
			`"projected":{"sources":[{"clusterTrustBundle":{"path":"ca","name":%q,"optional":%s}},`+
			`{"clusterTrustBundle":{"path":"cas","signerName":"abuse.io/x","labelSelector":{},"optional":true}}]}}]}`, name,
		one(a, "true", "false"))
	return configuration{objects: []object{{nsPath + "/pods", name, pod},
		{bundles, one(a, name, "abuse.io:x:"+name), body}}, wait: 50 * time.Millisecond,
		uses: []use{{"GET", bundles, "", one(a, accepts...), ""}, {"GET", nsPath + "/pods/" + name + "/log", "", "", ""},
			{"PATCH", bundles + "/" + name, "application/merge-patch+json", "", `{"spec":{"trustBundle":"` +
				strings.Repeat("x", 10_000) + `"}}`}}}
}

// scaled returns a Deployment with a HorizontalPodAutoscaler.
func (a *abuser) scaled(name string) configuration {
	deployment := fmt.Sprintf(
		`"spec":{"replicas":1,"selector":{"matchLabels":{"a":%q}},"template":{"metadata":{"labels":{"a":%[1]q}},`+
			`"spec":{"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"monopod.local/web:1",`+
			`"resources":{"requests":{"cpu":"1m"}}}]}}}`, name)
	metric := one(a,
		`{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":1}}}`,
		`{"type":"External","external":{"metric":{"name":"x"},"target":{"type":"Value","value":"1e99999999"}}}`,
		`{"type":"Pods","pods":{"metric":{"name":"x"},"target":{"type":"AverageValue","averageValue":"-1"}}}`,
		`{"type":"ContainerResource","containerResource":{"name":"memory","container":"c","target":{"type":"AverageValue",`+
			`"averageValue":"1"}}}`, `{}`)
	body := fmt.Sprintf(
		`"spec":{"minReplicas":%d,"maxReplicas":%d,"scaleTargetRef":{"apiVersion":"apps/v1","kind":%q,"name":%q},`+
			`"metrics":[%s],"behavior":{"scaleUp":{"stabilizationWindowSeconds":0,"policies":[{"type":"Percent","value":%d,`+
			`"periodSeconds":1}]}}}`,
		a.rand.IntN(3), one(a, 0, 1, 3), one(a, "Deployment", "Deployment", "Thing", "Nothing"), name, metric,
		one(a, 1, 100, 2147483647))
	return configuration{objects: []object{{deployments, name, deployment}, {scalers, name, body}},
		wait: 50 * time.Millisecond,
		uses: []use{{"GET", scalers + "/" + name, "", one(a, accepts...), ""},
			{"GET", deployments + "/" + name + "/scale", "", one(a, accepts...), ""},
			{"PATCH", deployments + "/" + name + "/scale", "application/merge-patch+json", "", `{"spec":{"replicas":` +
				one(a, "2", "-1", "0") + `}}`}}}
}

// network returns a NetworkPolicy, or an Ingress with its class.
func (a *abuser) network(name string) configuration {
	peers := strings.Repeat(
		one(a, `{"podSelector":{"matchLabels":{"a":"b"}}},`, `{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}},`,
			`{"ipBlock":{"cidr":"0.0.0.0/99"}},`, `{"namespaceSelector":{}},`), a.rand.IntN(2000)) + `{"podSelector":{}}`
	policy := fmt.Sprintf(
		`"spec":{"podSelector":{},"policyTypes":["Ingress","Egress"],"ingress":[{"from":[%s],"ports":[{"port":%s},`+
			`{"port":1,"endPort":65535}]}]}`, peers, one(a, "80", `"web"`, "-1", `"A_B"`))
	class := `"spec":{"controller":"monopod.io/ingress"}`
	path := fmt.Sprintf(`{"path":%q,"pathType":%q,"backend":{"service":{"name":%q,"port":{"number":%d}}}}`,
		one(a, "/", "/a/../b", "x", "/(a*)*b", "/"+strings.Repeat("a/", 1000)),
		one(a, "Prefix", "Exact", "ImplementationSpecific"), one(a, "c", "adversary", "none"), one(a, 80, 0, 443))
	ingress := fmt.Sprintf(
		`"spec":{"ingressClassName":%q,"tls":[{"hosts":["*.abuse.io"],"secretName":"none"}],"rules":[{"host":%q,`+
			`"http":{"paths":[%s%s]}}]}`, name, one(a, "a.abuse.io", "*.abuse.io", "", "1.2.3.4", "A_B"),
		strings.Repeat(path+",", a.rand.IntN(300)), path)
	objects := one(a, []object{{nsNetworks + "networkpolicies", name, policy}},
		[]object{{networks + "ingressclasses", name, class}, {nsNetworks + "ingresses", name, ingress}})
	at := objects[len(objects)-1]
	return configuration{objects: objects, wait: 20 * time.Millisecond, uses: []use{
		{"GET", at.collection, "", one(a, accepts...), ""}, {"GET", at.collection + "/" + name, "", one(a, accepts...), ""},
		{"PATCH", at.collection + "/" + name, one(a, contents[5:9]...), "", one(a, bodies...)},
		{http.MethodPut, at.collection + "/" + name, "application/json", "", `{"metadata":{"name":"` + name + `"},` +
			at.body + `}`}}}
}
