package cmd

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/testdata/harness"
)

const pods = `{"items": [
	{"metadata": {"name": "web-b", "namespace": "shop"}, "spec": {"containers": [{"name": "app"}]}},
	{"metadata": {"name": "web-a", "namespace": "shop", "annotations": {"kubectl.kubernetes.io/default-container": "side"}},
	 "spec": {"initContainers": [{"name": "init"}], "containers": [{"name": "app"}, {"name": "side"}]}}]}`

// cluster answers like an API server with a few objects; a log is the request for it.
func cluster(t *testing.T) (dataDir string) {
	t.Helper()
	objects := map[string]string{
		"/apis/apps/v1/namespaces/shop/deployments/web": `{"spec": {"selector": {"matchLabels": {"app": "web"}}}}`,
		"/api/v1/namespaces/shop/services/web":          `{"spec": {"selector": {"app": "web"}}}`,
		"/api/v1/namespaces/shop/services/outside":      `{"spec": {}}`,
		"/api/v1/namespaces/shop/pods/web-b": `{"metadata": {"name": "web-b", "namespace": "shop"}, ` +
			`"spec": {"containers": [{"name": "app"}]}}`,
		"/apis/batch/v1/namespaces/shop/cronjobs/tidy": `{"metadata": {"uid": "1"}}`,
		"/apis/batch/v1/namespaces/shop/cronjobs/new":  `{"metadata": {"uid": "2"}}`,
		"/apis/batch/v1/namespaces/shop/jobs": `{"items": [
			{"metadata": {"name": "tidy-2", "creationTimestamp": "2026-01-02T00:00:00Z", "ownerReferences": [{"uid": "1", "controller": true}]}},
			{"metadata": {"name": "tidy-1", "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"uid": "1", "controller": true}]}},
			{"metadata": {"name": "other", "creationTimestamp": "2026-01-03T00:00:00Z"}}]}`,
		"/apis/batch/v1/namespaces/shop/jobs/tidy-2": `{"spec": {"selector": {"matchLabels": {"app": "web"}}}}`,
	}
	return harness.DataFolder(t, func(w http.ResponseWriter, r *http.Request) {
		object, ok := objects[r.URL.Path]
		switch {
		case ok:
			fmt.Fprint(w, object)
		case r.URL.Path == "/api/v1/namespaces/shop/pods" && r.URL.Query().Get("labelSelector") == "app=web":
			fmt.Fprint(w, pods)
		case strings.HasSuffix(r.URL.Path, "/log") && r.URL.Query().Get("container") == "init":
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(
				w,
				`{"kind": "Status", "reason": "BadRequest", "message": "container init is waiting to start", "code": 400}`,
			)
		case strings.HasSuffix(r.URL.Path, "/log"):
			fmt.Fprintf(w, "%s\nno newline", r.URL.Query().Encode())
		default:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "reason": "NotFound", "message": "not found", "code": 404}`)
		}
	})
}

func TestLogs(t *testing.T) {
	t.Parallel()
	dir := cluster(t)
	both := "[web-a/side] container=side\n[web-a/side] no newline\n[web-b/app] container=app\n[web-b/app] no newline\n"
	for args, want := range map[string]struct{ out, stderr, err string }{
		"web-b": {"container=app\nno newline", "", ""},
		"pod/web-b -p --timestamps --since=90s": {"container=app&previous=true&sinceSeconds=90&timestamps=true\nno newline",
			"", ""},
		"po/web-b -f --tail=0 --since=1ms": {"container=app&follow=true&sinceSeconds=1&tailLines=0\nno newline", "", ""},
		"deploy/web":                       {both, "", ""},
		"Deployment/web":                   {both, "", ""},
		"svc/web":                          {both, "", ""},
		"cronjob/tidy":                     {both, "", ""},
		"deploy/web --all-containers": {"[web-a/app] container=app\n[web-a/app] no newline\n" + both,
			"monopod: container init is waiting to start; ask: monopod why pod/web-a -n shop\n", ""},
		"deploy/web -c app --tail=5": {"[web-a/app] container=app&tailLines=5\n[web-a/app] no newline\n" +
			"[web-b/app] container=app&tailLines=5\n[web-b/app] no newline\n", "", ""},
		"deploy/web -c side":            {"", "", "pod shop/web-b has no container side: its containers are app"},
		"svc/outside":                   {"", "", "service/outside has no pods in namespace shop; ask: monopod why service/outside -n shop"},
		"cronjob/new":                   {"", "", "cronjob/new in namespace shop has no jobs yet; ask: monopod why cronjob/new -n shop"},
		"deploy/none":                   {"", "", "not found"},
		"configmap/web":                 {"", "", "configmap has no logs: name a pod, a deployment"},
		"deploy/":                       {"", "", `got "deploy/"`},
		"web-b -c app --all-containers": {"", "", "--container and --all-containers exclude each other"},
		"web-b --tail=-2":               {"", "", "--tail must be -1 or more, got -2"},
		"web-b --since=-2s":             {"", "", "--since must not be negative"},
	} {
		cmd := logsCommand("")
		var out, stderr bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&stderr)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"--data-dir", dir, "-n", "shop"}, strings.Fields(args)...))
		err := cmd.ExecuteContext(t.Context())
		if out.String() != want.out || stderr.String() != want.stderr || (err == nil) != (want.err == "") ||
			err != nil && !strings.Contains(err.Error(), want.err) {
			t.Errorf("%s: %v\n%s%s\nwant %+v", args, err, &out, &stderr, want)
		}
	}
}

// The output of followed streams is in any order, but line by line.
func TestFollowAllPods(t *testing.T) {
	t.Parallel()
	cmd := logsCommand(cluster(t))
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--data-dir", cmd.Flag("data-dir").DefValue, "-n", "shop", "deploy/web", "-f"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(out.String(), "\n")
	slices.Sort(got)
	want := []string{
		"",
		"[web-a/side] container=side&follow=true",
		"[web-a/side] no newline",
		"[web-b/app] container=app&follow=true",
		"[web-b/app] no newline",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestLongLines(t *testing.T) {
	t.Parallel()
	out := &bytes.Buffer{}
	s := &stream{container: "c", out: &lineWriter{out: out}}
	s.pod = &podNamed
	long := strings.Repeat("x", 200<<10)
	if err := s.eachLine(strings.NewReader("a\n" + long + "\nb\n")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "x"); got != len(long) ||
		!strings.HasPrefix(out.String(), "[p/c] a\n[p/c] xxx") ||
		!strings.HasSuffix(out.String(), "x\n[p/c] b\n") {
		t.Errorf("the output has %d of %d bytes of the long line: %.20q", got, len(long), out)
	}
}

var podNamed = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
