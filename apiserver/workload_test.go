package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const (
	podTemplate = `"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"%s","containers":[{"name":"c",` +
		`"image":"d"%s}]}}`
	inApps  = "/apis/apps/v1/namespaces/default/"
	inBatch = "/apis/batch/v1/namespaces/default/"
)

// keeper returns the body of a workload that keeps its pods running, and runner of one that runs them to completion.
func keeper(name, more, container string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{` + more + `"selector":{"matchLabels":{"a":"b"}},` +
		fmt.Sprintf(podTemplate, "Always", container) + `}}`
}

func runner(name string) string {
	return `{"metadata":{"name":"` + name + `"},"spec":{` + fmt.Sprintf(podTemplate, "Never", "") + `}}`
}

func TestScaleOfAllKinds(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, resource := range []string{"deployments", "replicasets", "statefulsets", "replicationcontrollers"} {
		t.Run(resource, func(t *testing.T) {
			a := API{t, a.url, a.hc, a.reg}
			all, body := inApps+resource, keeper("x", "", "")
			if resource == "replicationcontrollers" {
				all = "/api/v1/namespaces/default/" + resource
				body = strings.Replace(body, `{"matchLabels":{"a":"b"}}`, `{"a":"b"}`, 1)
			}
			if code, got := a.read("POST", all, body); code != 201 {
				t.Fatalf("%d %v", code, got)
			}
			code, got := a.read("PATCH", all+"/x/scale", `{"spec":{"replicas":3}}`, "Content-Type: application/merge-patch+json")
			if code != 200 || fmt.Sprint(got["spec"]) != "map[replicas:3]" ||
				!strings.Contains(fmt.Sprint(got["status"]), "selector:a=b") {
				t.Errorf("%d %v", code, got)
			}
			if code, got = a.read("GET", all+"/x", ""); code != 200 || got["spec"].(map[string]any)["replicas"] != 3.0 ||
				got["metadata"].(map[string]any)["generation"] != 2.0 {
				t.Errorf("%d %v", code, got)
			}
			if code, got = a.read("PATCH", all+"/x/scale", `{"spec":{"replicas":-1}}`,
				"Content-Type: application/merge-patch+json"); code != 422 {
				t.Errorf("%d %v", code, got)
			}
		})
	}
	if code, got := a.read("GET", inApps+"daemonsets/x/scale", ""); code != 404 {
		t.Errorf("the scale of a DaemonSet: %d %v, want 404", code, got)
	}
}

// Deleting a Job without a propagation policy orphans its pods, with a warning; with a policy there is none.
func TestDeletedJobsLeaveTheirPods(t *testing.T) {
	t.Parallel()
	a := serve(t)
	for _, c := range []struct{ query, stays, warned string }{
		{"", "orphan", `299 - "child pods are preserved by default`},
		{"?propagationPolicy=Background", "", ""},
		{"?propagationPolicy=Orphan", "orphan", ""},
		{"?propagationPolicy=Foreground", "foregroundDeletion", ""},
	} {
		name := "j" + strings.ToLower(strings.TrimPrefix(c.query, "?propagationPolicy="))
		if code, got := a.read("POST", inBatch+"jobs", runner(name)); code != 201 {
			t.Fatalf("%d %v", code, got)
		}
		resp := a.do("DELETE", inBatch+"jobs/"+name+c.query, "")
		data, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s %v", resp.StatusCode, data, err)
		}
		var got struct {
			Kind     string
			Metadata struct{ Finalizers []string }
		}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatal(err)
		}
		if strings.Join(got.Metadata.Finalizers, ",") != c.stays ||
			!strings.HasPrefix(resp.Header.Get("Warning"), c.warned) || c.warned == "" && resp.Header.Get("Warning") != "" {
			t.Errorf("%q: %s, warned %q", c.query, data, resp.Header.Get("Warning"))
		}
	}
}

// The garbage collector does not watch Events, so a deletion of an Event does not wait for it, whatever the propagation
// policy is, and also if the Event has the finalizer foregroundDeletion.
func TestDeletedEventsAreRemoved(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const events = "/api/v1/namespaces/default/events"
	for _, c := range []struct{ query, finalizer string }{
		{"?propagationPolicy=Foreground", ""}, {"?propagationPolicy=Orphan", ""}, {"?orphanDependents=true", ""},
		{"", `"foregroundDeletion"`},
	} {
		body := fmt.Sprintf(`{"metadata":{"name":"e","finalizers":[%s]},"involvedObject":{"namespace":"default"}}`,
			c.finalizer)
		if code, got := a.read("POST", events, body); code != 201 {
			t.Fatalf("%d %v", code, got)
		}
		if code, got := a.read("DELETE", events+c.query, ""); code != 200 {
			t.Fatalf("%d %v", code, got)
		}
		if code, got := a.read("GET", events+"/e", ""); code != 404 {
			t.Errorf("%+v: %d %v", c, code, got)
		}
	}
}

func TestTemplatesWarn(t *testing.T) {
	t.Parallel()
	a := serve(t)
	const twice = `,"env":[{"name":"x","value":"1"},{"name":"x","value":"2"}]`
	warnings := func(method, path, body string, header ...string) []string {
		resp := a.do(method, path, body, header...)
		if resp.StatusCode > 201 {
			t.Errorf("%s %s: %s", method, path, resp.Status)
		}
		return slices.DeleteFunc(resp.Header.Values("Warning"),
			func(w string) bool { return strings.Contains(w, "is only stored") })
	}
	want := `299 - "spec.template.spec.containers[0].env[1]: hides previous definition of \"x\", ` +
		`which may be dropped when using apply"`
	if got := warnings("POST", inApps+"deployments", keeper("w", "", twice)); len(got) != 1 || got[0] != want {
		t.Errorf("got %q", got)
	}
	for body, n := range map[string]int{`{"metadata":{"labels":{"a":"b"}}}`: 0, `{"spec":{"replicas":4}}`: 1} {
		if got := warnings("PATCH", inApps+"deployments/w", body, "Content-Type: application/merge-patch+json"); len(
			got) != n {
			t.Errorf("%s: got %q", body, got)
		}
	}
	if got := warnings("GET", inApps+"deployments/w", ""); len(got) != 0 {
		t.Errorf("a read warns %q", got)
	}
}

// Both versions serve the same autoscaler.
func TestAutoscalersInBothVersions(t *testing.T) {
	t.Parallel()
	a := serve(t)
	v1, v2 := "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
		"/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	body := `{"metadata":{"name":"h"},"spec":{"maxReplicas":4,"targetCPUUtilizationPercentage":30,` +
		`"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`
	if code, got := a.read("POST", v1, body); code != 201 || got["apiVersion"] != "autoscaling/v1" {
		t.Fatalf("%d %v", code, got)
	}
	add := `{"spec":{"metrics":[{"type":"Resource","resource":{"name":"memory","target":{"type":"AverageValue","averageValue":"1Gi"}}},
		{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":35}}}]}}`
	if code, got := a.read("PATCH", v2+"/h", add, "Content-Type: application/merge-patch+json"); code != 200 ||
		got["apiVersion"] != "autoscaling/v2" {
		t.Fatalf("%d %v", code, got)
	}
	code, got := a.read("PATCH", v1+"/h", `{"spec":{"maxReplicas":9}}`, "Content-Type: application/merge-patch+json")
	if spec := got["spec"].(map[string]any); code != 200 || spec["maxReplicas"] != 9.0 ||
		spec["targetCPUUtilizationPercentage"] != 35.0 {
		t.Fatalf("%d %v", code, got)
	}
	code, got = a.read("GET", v2+"/h", "")
	if text := fmt.Sprint(got); code != 200 || !strings.Contains(text, "averageValue:1Gi") ||
		!strings.Contains(text, "averageUtilization:35") || strings.Contains(text, "autoscaling.alpha") {
		t.Errorf("%d %v", code, got)
	}
	if code, got = a.read("POST", v1, strings.Replace(body, `"maxReplicas":4`, `"maxReplicas":0`, 1)); code != 422 {
		t.Errorf("%d %v", code, got)
	}
	table := func(path string) string {
		_, got := a.read("GET", path, "", "Accept: application/json;as=Table;v=v1;g=meta.k8s.io")
		return fmt.Sprint(got["rows"].([]any)[0].(map[string]any)["cells"].([]any)[:6])
	}
	if one, two := table(v1), table(v2); one != two ||
		!strings.HasPrefix(one, "[h Deployment/d memory: <unknown>/1Gi, cpu: <unknown>/35% 1 9 0") {
		t.Errorf("v1 prints %s, v2 %s", one, two)
	}
}
