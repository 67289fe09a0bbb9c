package web_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"monopod/apiserver/kit/client"
)

const shelf = `{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shelf", "namespace": "default", "labels": {"team": "one"}}, "spec": {"replicas": 2,
	"selector": {"matchLabels": {"app": "shelf"}}, "template": {"metadata": {"labels": {"app": "shelf"}}, "spec": {"containers": [
	{"name": "web", "image": "web:1", "env": [{"name": "COLOR", "value": "red"}, {"name": "SIZE", "value": "10"}], "ports": [{"containerPort": 80}]}, {"name": "log", "image": "log:1"}]}}}}`

const shelfPath = "/apis/apps/v1/namespaces/default/deployments/shelf"

// edits changes an object that kubectl created. Like kubectl edit, the page writes only the edited fields, and keeps
// what other clients have written meanwhile. A change of the same field by another client, and a manager that applies
// the field, are conflicts.
func (p page) edits(a *api) {
	a.as(p.t, "kubectl-create", http.MethodPost, strings.TrimSuffix(shelfPath, "/shelf"), "application/json", shelf)
	p.visit("#/deployments.apps/default/shelf/yaml")
	p.changes("image: web:1", "image: web:2", "value: \"10\"", "value: \"20\"")
	p.accepts("web:2")
	if d := a.shelf(p.t); d.Spec.Template.Spec.Containers[0].Image != "web:2" ||
		d.Spec.Template.Spec.Containers[0].Env[1].Value != "20" || *d.Spec.Replicas != 2 {
		p.t.Errorf("the object does not match the edit: %v", d.Spec)
	}
	if fields := a.owned(p.t, "monopod-page"); !strings.Contains(fields, "f:image") ||
		strings.Contains(fields, "f:replicas") || strings.Contains(fields, `"log`) {
		p.t.Errorf("the page should own only the edited fields: %s", fields)
	}

	// An edit keeps what other clients have written meanwhile, and can remove what they set before.
	p.changes("        - name: SIZE\n          value: \"20\"\n", "", "team: one", "team: two")
	a.as(p.t, "kubectl-scale", http.MethodPatch, shelfPath, "application/merge-patch+json", `{"spec": {"replicas": 5}}`)
	p.sees(`%s.includes("changed since")`, text(".tools"))
	p.accepts("team: two")
	if d := a.shelf(p.t); *d.Spec.Replicas != 5 || d.Labels["team"] != "two" ||
		!slices.Equal(d.Spec.Template.Spec.Containers[0].Env, []corev1.EnvVar{{Name: "COLOR", Value: "red"}}) {
		p.t.Errorf("the object does not have both changes: %v %v", d.Labels, d.Spec)
	}

	// A change of the same field is a conflict, also if the field changes once more after the user took it over.
	p.changes("replicas: 5", "replicas: 3")
	scales := func(n int) {
		a.as(p.t, "kubectl-scale", http.MethodPatch, shelfPath, "application/merge-patch+json",
			fmt.Sprintf(`{"spec": {"replicas": %d}}`, n))
	}
	scales(7)
	p.press(".body", "Review changes")
	p.sees(`%s?.includes('.spec.replicas has changed since you opened it, by "kubectl-scale": it was 5, and is 7 now')`,
		text(".conflicts"))
	p.press(".review", "Take over these fields")
	p.sees(`document.querySelector("[data-action=apply]")`)
	scales(8)
	p.press(".review", "Apply and take over")
	p.sees(`%s?.includes("is 8 now")`, text(".conflicts"))
	p.press(".review", "Take over these fields")
	p.press(".review", "Apply and take over")
	p.sees(`%s === "Applied."`, text(".review"))

	// A manager that applies keeps its fields, unless the user takes them over; other fields have no conflict.
	a.as(p.t, "flux", http.MethodPatch, shelfPath+"?force=true", "application/apply-patch+yaml",
		strings.NewReplacer("web:1", "web:3").Replace(shelf))
	p.press(".tools", "Read again")
	p.changes("image: web:3", "image: web:4", "replicas: 2", "replicas: 2\n  minReadySeconds: 3")
	p.press(".body", "Review changes")
	p.sees(`%s === '.spec.template.spec.containers[name="web"].image belongs to "flux", `+
		`which applies it and may set it again'`, text(".conflicts"))
	p.press(".review", "Take over these fields")
	p.press(".review", "Apply and take over")
	p.sees(`%s === "Applied."`, text(".review"))
	if d := a.shelf(p.t); d.Spec.Template.Spec.Containers[0].Image != "web:4" || d.Spec.MinReadySeconds != 3 {
		p.t.Errorf("the object does not match the edit: %v", d.Spec)
	}

	// An edit that the server refuses changes nothing. The order of a list can be edited.
	p.changes("restartPolicy: Always", "restartPolicy: Sometimes")
	p.press(".body", "Review changes")
	p.sees(`%s?.includes("restartPolicy")`, text(".review .error"))
	p.changes("restartPolicy: Sometimes", "restartPolicy: Always\n      initContainers: [{name: b, image: \"log:1\"}]")
	p.accepts("name: b")
	p.changes("      initContainers:\n", "      initContainers:\n      - name: a\n        image: log:1\n")
	p.accepts("name: a")
	if d := a.shelf(p.t); len(d.Spec.Template.Spec.InitContainers) != 2 ||
		d.Spec.Template.Spec.InitContainers[0].Name != "a" {
		p.t.Errorf("got %v", d.Spec.Template.Spec.InitContainers)
	}

	// The page applies documents to objects that kubectl created.
	a.as(p.t, "kubectl-create", http.MethodPost, "/api/v1/namespaces/default/configmaps", "application/json",
		`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shade"}, "data": {"of": "grey"}}`)
	p.visit("#/create")
	p.put(".drop .editor",
		"{\"apiVersion\": \"v1\", \"kind\": \"ConfigMap\", \"metadata\": {\"name\": \"shade\"}, \"data\": {\"of\": \"blue\"}}")
	p.press("main", "Check")
	p.sees(`%s.includes("would be changed")`, text(".review"))
	p.press(".review", "Create it")
	p.press(".review", "ConfigMap shade")
	p.sees(`%s.includes("blue")`, text("[data-section=Data]"))
}

// changes replaces parts of the text in the editor; pairs are old and new parts.
func (p page) changes(pairs ...string) {
	p.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		p.sees(`document.querySelector(".editor")?.value.includes(%q)`, pairs[i])
		p.value(fmt.Sprintf(
			`{const e = document.querySelector(".editor"); e.value = e.value.replace(%q, `+
				`%q); e.dispatchEvent(new Event("input")); true}`, pairs[i], pairs[i+1]))
	}
}

// accepts reviews the changes, one of which contains words, and applies them without a conflict.
func (p page) accepts(words string) {
	p.t.Helper()
	p.press(".body", "Review changes")
	p.sees(`[...document.querySelectorAll(".diff ins")].some((e) => e.innerText.includes(%q))`, words)
	p.press(".review", "Apply")
	p.sees(`%s === "Applied."`, text(".review"))
}

// as sends a request as another field manager.
func (a *api) as(t *testing.T, manager, method, path, contentType, body string) {
	t.Helper()
	join := "?"
	if strings.Contains(path, "?") {
		join = "&"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, a.url+path+join+"fieldManager="+manager,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", contentType)
	resp, err := a.server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: %s %s %v", method, path, resp.Status, answer, err)
	}
}

func (a *api) shelf(t *testing.T) *appsv1.Deployment {
	t.Helper()
	obj, err := a.reg.Get(t.Context(),
		client.Ref{Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Namespace: "default", Name: "shelf"})
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*appsv1.Deployment)
}

// owned returns the fields of the shelf that a manager owns.
func (a *api) owned(t *testing.T, manager string) string {
	t.Helper()
	var out strings.Builder
	for _, e := range a.shelf(t).ManagedFields {
		if e.Manager == manager {
			out.Write(e.FieldsV1.GetRawBytes())
		}
	}
	return out.String()
}
