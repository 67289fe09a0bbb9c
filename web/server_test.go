package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver"
	"monopod/apiserver/access/rbac"
	"monopod/apiserver/access/rbac/policy"
	"monopod/apiserver/admin"
	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/registry"
	"monopod/store"
	"monopod/web"
)

const (
	token      = "0123456789abcdef"
	viewToken  = "view-456789abcdef"
	robotToken = "robot-56789abcdef"
	robot      = "robot" // a user without roles
)

// history is the number of changes in the server's history.
const history = 200

// api is a server with the page and a store in memory.
type api struct {
	url     string
	reg     *registry.Registry
	server  *httptest.Server
	refuses atomic.Bool // no token is valid
	down    atomic.Bool // every response is 503
	cuts    atomic.Bool // the connection breaks within the next response to a SelfSubjectReview
	breaks  atomic.Bool // the connection breaks when the next script of the page is requested
}

func serve(t *testing.T) *api {
	t.Helper()
	resources := registry.Resources()
	s := store.NewMemory(store.Config{Kind: registry.Kinds(resources), History: history}, nil, nil, 0)
	roles := rbac.New(rbac.Config{})
	reg := registry.New(s, resources, registry.Config{Roles: roles})
	for _, err := range []error{reg.Bootstrap(t.Context()), policy.Bootstrap(t.Context(), reg)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- roles.Run(ctx, reg) }()
	a := &api{reg: reg}
	known := auth.Any(auth.Token(token, auth.Admin), auth.Token(viewToken, auth.Viewer),
		auth.Token(robotToken, auth.User{Name: robot, Groups: []string{auth.Authenticated}}))
	srv, err := apiserver.New(t.Context(), apiserver.Config{
		Registry: reg, Web: web.Handler(os.DirFS("../docs")), Authorizer: roles,
		Admin: admin.Config{SignIn: func(view bool) (string, error) {
			if view {
				return viewToken, nil
			}
			return token, nil
		}},
		Authenticator: auth.Func(func(r *http.Request) (auth.User, bool) {
			u, ok := known.Authenticate(r)
			return u, ok && !a.refuses.Load()
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := srv.Handler()
	a.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.down.Load() {
			http.Error(w, "out for lunch", http.StatusServiceUnavailable)
			return
		}
		if r.URL.Path == "/ui/core.js" && a.breaks.CompareAndSwap(true, false) {
			panic(http.ErrAbortHandler)
		}
		if strings.HasSuffix(r.URL.Path, "/selfsubjectreviews") && a.cuts.CompareAndSwap(true, false) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusCreated)
			w.Write([]byte(`{"kind":`))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}
		h.ServeHTTP(w, r)
	}))
	a.server.EnableHTTP2 = true
	a.server.StartTLS()
	a.url = a.server.URL
	t.Cleanup(func() {
		a.server.CloseClientConnections()
		a.server.Close()
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return a
}

// --- objects of the tests ---

func create[T client.Object](t *testing.T, a *api, obj T) T {
	t.Helper()
	out, err := a.reg.Create(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	return out.(T)
}

func machine() *corev1.Node {
	amounts := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8148844Ki"),
		corev1.ResourceEphemeralStorage: resource.MustParse("61255492Ki"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "greenhouse-01"},
		Status: corev1.NodeStatus{
			Capacity: amounts, Allocatable: amounts,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.7.20"},
				{Type: corev1.NodeHostName, Address: "greenhouse-01"}},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion: "v1.37.2", ContainerRuntimeVersion: "containerd://2.4.2", OSImage: "Debian GNU/Linux 12",
				KernelVersion: "6.1.0-44-arm64", Architecture: "arm64",
			},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
		},
	}
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:   "greenhouse-01",
			Containers: []corev1.Container{{Name: "c", Image: "monopod.local/web:1"}},
		},
	}
}

// runs sets the status of pod to that of a running pod.
func (a *api) runs(t *testing.T, pod *corev1.Pod, restarts int32) {
	t.Helper()
	_, err := client.Update(t.Context(), a.reg, pod, "status", func(p *corev1.Pod) error {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, "10.88.0.7", []corev1.PodIP{{IP: "10.88.0.7"}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", Ready: true, RestartCount: restarts, Image: "monopod.local/web:1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}},
		}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// waits sets the status of pod to that of a pod that cannot start.
func (a *api) waits(t *testing.T, pod *corev1.Pod, reason, message string) {
	t.Helper()
	_, err := client.Update(t.Context(), a.reg, pod, "status", func(p *corev1.Pod) error {
		p.Status.Phase = corev1.PodPending
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func replicaSet(name string, replicas int32) *appsv1.ReplicaSet {
	labels := map[string]string{"app": name}
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

func event(name, kind, reason, about, message string, at time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: about},
		Type:           kind, Reason: reason, Message: message, Count: 3,
		FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at),
	}
}

// remove deletes a pod with grace period 0, as the agent does after the containers have ended.
func (a *api) remove(t *testing.T, name string) {
	t.Helper()
	ref := client.Ref{Resource: client.Pods, Namespace: "default", Name: name}
	if _, err := a.reg.Delete(t.Context(), ref, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
}
