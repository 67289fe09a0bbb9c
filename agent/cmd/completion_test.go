package cmd

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"monopod/apiserver/kit/local"
	"monopod/testdata/harness"
)

// serve serves answers by path on the socket of a data folder.
func serve(t *testing.T, answers map[string]string) *local.Place {
	t.Helper()
	dir := harness.DataFolder(t, func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		fmt.Fprint(w, answer)
	})
	return &local.Place{DataDir: dir}
}

func list(names ...string) string {
	var items []string
	for _, name := range names {
		items = append(items, fmt.Sprintf(`{"metadata": {"name": %q}}`, name))
	}
	return `{"items": [` + strings.Join(items, ",") + `]}`
}

func TestObjects(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	place := serve(t, map[string]string{
		"/api/v1/namespaces/default/pods": list("web-0", "web-1"), "/api/v1/namespaces/shop/pods": list("cart"),
		"/apis/apps/v1/namespaces/default/deployments": list("web"), "/api/v1/nodes": list("box"),
	})
	for _, c := range []struct {
		typed, namespace string
		pods             bool
		want             string // the first completions
		more             bool   // no space follows the completion
	}{
		{"", "", true, "web-0 web-1 pod/ deploy/", true},
		{"", "", false, "pod/ deploy/ rs/", true},
		{"pod/", "", false, "pod/web-0 pod/web-1", false},
		{"pods/w", "", false, "pods/web-0 pods/web-1", false},
		{"pod/", "shop", true, "pod/cart", false},
		{"deploy/", "", true, "deploy/web", false},
		{"deployment/", "", true, "deployment/web", false},
		{"node/", "shop", false, "node/box", false},
		{"job/", "", true, "", false}, // no jobs exist
		{"none/", "", true, "", false},
	} {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		got, directive := completeObjects(place, &c.namespace, c.pods)(cmd, nil, c.typed)
		if !strings.HasPrefix(strings.Join(got, " "), c.want) || c.want == "" && len(got) > 0 ||
			!c.more && strings.Join(got, " ") != c.want {
			t.Errorf("%+v: completions %v", c, got)
		}
		if more := directive&cobra.ShellCompDirectiveNoSpace != 0; more != c.more ||
			directive&cobra.ShellCompDirectiveNoFileComp == 0 {
			t.Errorf("%+v: directive %d", c, directive)
		}
	}
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	if got, _ := completeObjects(place, nil, true)(cmd, []string{"web-0"}, ""); len(got) > 0 {
		t.Errorf("completions after an object: %v", got)
	}
	if got, _ := completeObjects(&local.Place{DataDir: "/none"}, nil, false)(cmd, nil, "pod/"); len(got) > 0 {
		t.Errorf("completions without a server: %v", got)
	}
}

func TestImages(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	place := serve(t,
		map[string]string{"/monopod/images": `{"images": [{"names": ["a:1", "a:2"]}, {"names": ["b:1"]}, {"names": []}]}`})
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	if got, _ := completeImages(&imagesOptions{Place: *place})(cmd, []string{"a:2"}, ""); strings.Join(got, " ") != "a:1 b:1" {
		t.Errorf("completions: %v, want a:1 and b:1", got)
	}
}
