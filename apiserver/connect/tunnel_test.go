package connect

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/nodetunnel"
)

// deletes records what is deleted, and by whom.
type deletes struct {
	API
	deleted []string
}

func (d *deletes) Delete(ctx context.Context, ref client.Ref, _ metav1.DeleteOptions) (client.Object, error) {
	_, user := auth.Known(ctx)
	d.deleted = append(d.deleted, fmt.Sprint(ref.Resource.Resource, "/", ref.Name, " by a user: ", user))
	if ref.Name == "gone" {
		return nil, apierrors.NewNotFound(ref.Resource.GroupResource(), ref.Name)
	}
	return nil, nil
}

// Only the agent of a node opens a tunnel or leaves, for its own node.
func TestTunnelIsOfNodes(t *testing.T) {
	t.Parallel()
	api := &deletes{}
	c := New(Config{API: api, Stop: t.Context(), Log: zap.NewNop(),
		Fail: func(w http.ResponseWriter, _ *http.Request, err error) { failAsText(w, err) }})
	ask := func(h http.HandlerFunc, user auth.User, header string) int {
		r := httptest.NewRequestWithContext(auth.WithUser(t.Context(), user), http.MethodGet, nodetunnel.Path, nil)
		r.Header.Set("Upgrade", header)
		w := httptest.NewRecorder()
		h(w, r)
		return w.Code
	}
	node := func(name string) auth.User { return auth.User{Name: auth.NodePrefix + name, Groups: []string{auth.Nodes}} }
	for name, user := range map[string]auth.User{
		"an admin":              auth.Admin,
		"a node's name alone":   {Name: auth.NodePrefix + "n"},
		"the group alone":       {Name: "n", Groups: []string{auth.Nodes}},
		"a node without a name": node(""),
	} {
		if tunnel, leave := ask(c.Tunnel, user, nodetunnel.Protocol), ask(c.Leave, user, ""); tunnel != 403 || leave != 403 {
			t.Errorf("%s: %d, %d", name, tunnel, leave)
		}
	}
	if code := ask(c.Tunnel, node("n"), "websocket"); code != 400 {
		t.Errorf("another protocol: %d", code)
	}
	if len(api.deleted) > 0 {
		t.Errorf("deleted %v", api.deleted)
	}
	for _, name := range []string{"n", "gone"} {
		if code := ask(c.Leave, node(name), ""); code != 204 {
			t.Errorf("%s leaves: %d", name, code)
		}
	}
	if got := fmt.Sprint(api.deleted); got != "[nodes/n by a user: false nodes/gone by a user: false]" {
		t.Error(got)
	}
}
