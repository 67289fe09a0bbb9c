package audit_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"monopod/apiserver/audit"
	"monopod/apiserver/auth"
)

const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"

func TestPolicyErrorsNameTheField(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{
		head + "rules: [{level: Metadata}]":                                      "",
		"rules: [{level: Metadata}]":                                             `must contain a Policy of audit.k8s.io/v1`,
		"apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]": `got a "Policy" of "audit.k8s.io/v1beta1"`,
		head:                                  "rules: Required value",
		head + "rules: [{level: Everything}]": `rules[0].level: Unsupported value: "Everything"`,
		head + "rules: [{level: None}, {}]":   `rules[1].level: Unsupported value: ""`,
		head + "rules: [{level: None, colour: red}]":                                  `unknown field "colour"`,
		head + "rules: [{level: None, omitStages: [Lunch]}]":                          `rules[0].omitStages[0]: Unsupported value: "Lunch"`,
		head + "omitStages: [Lunch]\nrules: [{level: None}]":                          `omitStages[0]: Unsupported value`,
		head + "rules: [{level: None, nonResourceURLs: [/a], namespaces: [b]}]":       "rules[0].nonResourceURLs: Invalid value",
		head + "rules: [{level: None, nonResourceURLs: [a, '/*/b']}]":                 `rules[0].nonResourceURLs[1]: Invalid value: "/*/b"`,
		head + "rules: [{level: None, resources: [{group: '', resourceNames: [a]}]}]": "rules[0].resources[0].resourceNames: Invalid value",
		head + "rules: {": "yaml",
	} {
		_, err := audit.ParsePolicy([]byte(policy))
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", policy, err, want)
		}
	}
}

func TestFirstMatchingRuleDecides(t *testing.T) {
	t.Parallel()
	p, err := audit.ParsePolicy([]byte(head + `
rules:
- {level: None, users: [kubelet], verbs: [get, watch]}
- {level: None, nonResourceURLs: ['/healthz*', /version]}
- {level: Metadata, resources: [{group: '', resources: [secrets, pods/log]}]}
- {level: Request, resources: [{group: apps, resources: ['*/scale', 'deployments/*']}]}
- {level: RequestResponse, resources: [{group: '', resources: [configmaps], resourceNames: [a]}]}
- {level: Request, userGroups: [humans], namespaces: [live, '']}
- {level: Metadata, resources: [{group: batch}]}
`))
	if err != nil {
		t.Fatal(err)
	}
	human := auth.User{Name: "u", Groups: []string{"x", "humans"}}
	for _, c := range []struct {
		a    auth.Attributes
		want audit.Level
	}{
		{auth.Attributes{User: auth.User{Name: "kubelet"}, Verb: "get", Resource: "secrets"}, audit.None},
		{auth.Attributes{User: auth.User{Name: "kubelet"}, Verb: "delete", Resource: "secrets"}, audit.Metadata},
		{auth.Attributes{Path: "/healthz/etcd"}, audit.None},
		{auth.Attributes{Path: "/version"}, audit.None},
		{auth.Attributes{Path: "/versions"}, audit.None},
		{auth.Attributes{User: human, Path: "/metrics"}, audit.None},
		{auth.Attributes{Resource: "pods", Subresource: "log"}, audit.Metadata},
		{auth.Attributes{Resource: "pods"}, audit.None},
		{auth.Attributes{Group: "apps", Resource: "statefulsets", Subresource: "scale"}, audit.Request},
		{auth.Attributes{Group: "apps", Resource: "deployments", Subresource: "status"}, audit.Request},
		{auth.Attributes{Group: "apps", Resource: "deployments"}, audit.Request},
		{auth.Attributes{Resource: "configmaps", Name: "a"}, audit.RequestResponse},
		{auth.Attributes{Resource: "configmaps", Name: "b"}, audit.None},
		{auth.Attributes{User: human, Resource: "pods", Namespace: "live"}, audit.Request},
		{auth.Attributes{User: human, Resource: "nodes"}, audit.Request},
		{auth.Attributes{User: human, Resource: "pods", Namespace: "test"}, audit.None},
		{auth.Attributes{Group: "batch", Resource: "jobs"}, audit.Metadata},
	} {
		if got := p.Decide(c.a).Level; got != c.want {
			t.Errorf("%+v: %s, want %s", c.a, got, c.want)
		}
	}
}

func TestStagesAndManagedFieldsAreOmittable(t *testing.T) {
	t.Parallel()
	p, err := audit.ParsePolicy([]byte(head + "omitStages: [RequestReceived]\nomitManagedFields: true\n" +
		"rules: [{level: RequestResponse}]"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	r := audit.New(&out, p, clock.RealClock{}, zap.NewNop()).Begin(auth.Attributes{Resource: "pods"},
		audit.Caller{ID: "me"})
	r.Sent([]byte(`{"metadata":{"name":"a","managedFields":[{}]}}`))
	r.Answered([]byte(`{"items":[{"metadata":{"name":"b","managedFields":[{}]}}]}`))
	r.Ended(200)
	got := out.String()
	if strings.Count(got, "\n") != 1 || !strings.Contains(got, `"requestObject":{"metadata":{"name":"a"}}`) ||
		!strings.Contains(got, `"responseObject":{"items":[{"metadata":{"name":"b"}}]}`) || !strings.Contains(got,
		`"auditID":"me","stage":"ResponseComplete"`) {
		t.Error(got)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	for path, text := range map[string]string{good: head + "rules: [{level: Metadata}]", bad: head} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		o    audit.Options
		want string // of the error; "log" or "none" without an error
	}{
		{audit.Options{}, "none"},
		{audit.Options{PolicyFile: good, Path: filepath.Join(dir, "log")}, "log"},
		{audit.Options{PolicyFile: good, Path: "-"}, "log"},
		{audit.Options{PolicyFile: good}, "--audit-log-path"},
		{audit.Options{Path: "x"}, "requires --audit-policy-file"},
		{audit.Options{PolicyFile: bad, Path: "-"}, "--audit-policy-file: " + bad + ": rules: Required value"},
		{audit.Options{PolicyFile: filepath.Join(dir, "gone"), Path: "-"}, "no such file"},
		{audit.Options{PolicyFile: good, Path: filepath.Join(dir, "no", "log")}, "--audit-log-path"},
		{audit.Options{PolicyFile: good, Path: "-", MaxAge: -1}, "at least 0"},
	} {
		log, closer, err := c.o.Open(clock.RealClock{}, zap.NewNop())
		switch {
		case err != nil && !strings.Contains(err.Error(), c.want), err == nil && (log != nil) != (c.want == "log"):
			t.Errorf("%+v: %v, %v", c.o, log, err)
		}
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
}

func FuzzPolicy(f *testing.F) {
	f.Add([]byte(head+"rules: [{level: Metadata, resources: [{group: '', resources: ['*/x', 'a/*', '*']}]}]"), "pods",
		"log", "/a")
	f.Add([]byte(head+"rules: [{level: None, nonResourceURLs: ['*']}]"), "", "", "/")
	f.Fuzz(func(_ *testing.T, policy []byte, resource, sub, path string) {
		p, err := audit.ParsePolicy(policy)
		if err != nil {
			return
		}
		p.Decide(auth.Attributes{Resource: resource, Subresource: sub})
		p.Decide(auth.Attributes{Path: path})
	})
}
