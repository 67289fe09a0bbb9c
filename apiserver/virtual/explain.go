package virtual

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"monopod/apiserver/access"
	"monopod/apiserver/auth"
	"monopod/apiserver/codec"
	"monopod/apiserver/flow"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/nodetunnel"
	"monopod/apiserver/kit/spelling"
	"monopod/apiserver/kit/words"
	"monopod/apiserver/registry"
	"monopod/apiserver/why"
	"monopod/apiserver/why/facts"
)

// Explainer serves why.Path and why.HealthPath. It reads everything with the rights of the caller. All fields but Connect are required.
type Explainer struct {
	Registry *registry.Registry
	Guard    *access.Guard
	Gate     *flow.Gate
	// Node returns the client of a node by its name.
	Node func(ctx context.Context, name string) (client.Node, error)
	// Connect opens a connection to an address of a pod; nil: no connections are tried.
	Connect func(ctx context.Context, network, address string) (net.Conn, error)
	// Tunnel returns what the server knows about the tunnel of a node.
	Tunnel func(node string) nodetunnel.State
	Clock  clock.PassiveClock
	Out    *codec.Responder
}

// Serve answers a request.
func (s *Explainer) Serve(w http.ResponseWriter, r *http.Request) {
	answer := s.explain
	if r.URL.Query().Get("kind") == "" && r.URL.Query().Get("name") == "" {
		answer = s.report
	}
	s.send(w, r, answer)
}

// Health serves why.HealthPath.
func (s *Explainer) Health(w http.ResponseWriter, r *http.Request) { s.send(w, r, s.unwell) }

func (s *Explainer) send(w http.ResponseWriter, r *http.Request, answer func(*http.Request) (any, error)) {
	a, err := answer(r)
	if err != nil {
		s.Out.Fail(w, r, err)
		return
	}
	s.Out.Send(w, r, codec.Format{}, http.StatusOK, codec.Indented(a))
}

func (s *Explainer) unwell(r *http.Request) (any, error) {
	res, err := s.resourceNamed(r.URL.Query().Get("kind"))
	if err != nil {
		return nil, err
	}
	ctx, in, err := s.Gate.Enter(nil, r, client.Ref{})
	if err != nil {
		return nil, err
	}
	defer in.Leave()
	list, _, err := userReader{s, auth.UserOf(ctx)}.List(ctx,
		client.Selector{Resource: res.GVR, Namespace: r.URL.Query().Get("namespace")})
	if err != nil {
		return nil, err
	}
	unwell, now := map[types.UID]why.Health{}, s.Clock.Now()
	for _, o := range list {
		if h := why.HealthOf(o, now); h.State != "" {
			unwell[o.GetUID()] = h
		}
	}
	return unwell, nil
}

func (s *Explainer) explain(r *http.Request) (any, error) {
	q := r.URL.Query()
	res, err := s.resourceNamed(q.Get("kind"))
	if err != nil {
		return nil, err
	}
	ref := client.Ref{Resource: res.GVR, Name: q.Get("name")}
	if ref.Name == "" {
		return nil, apierrors.NewBadRequest("the parameter name is required")
	}
	if res.Namespaced {
		ref.Namespace = cmp.Or(q.Get("namespace"), metav1.NamespaceDefault)
	}
	ctx, in, err := s.Gate.Enter(nil, r, client.Ref{})
	if err != nil {
		return nil, err
	}
	defer in.Leave()
	f, err := facts.Collect(ctx, userReader{s, auth.UserOf(ctx)}, ref, s.Clock.Now())
	if err != nil {
		return nil, err
	}
	return why.Of(f), nil
}

// maxExplained limits how many objects that look wrong are explained to find why.MaxProblems that are.
const maxExplained = 5 * why.MaxProblems

// maxCustom limits how many objects of a custom kind are judged, because the conditions of each are decoded.
const maxCustom = 200

// report explains everything that is wrong now, in one namespace or in all.
func (s *Explainer) report(r *http.Request) (any, error) {
	ctx, in, err := s.Gate.Enter(nil, r, client.Ref{})
	if err != nil {
		return nil, err
	}
	defer in.Leave()
	reader, now := userReader{s, auth.UserOf(ctx)}, s.Clock.Now()
	namespace := r.URL.Query().Get("namespace")
	report := why.Report{Problems: []why.Problem{}, Pods: map[corev1.PodPhase]int{}}
	refs := map[client.Object]client.Ref{}
	var objects []client.Object
	read := func(at schema.GroupVersionResource, namespace string, limit int) error {
		list, _, err := reader.List(ctx, client.Selector{Resource: at, Namespace: namespace})
		switch {
		case apierrors.IsForbidden(err):
			report.Hidden = append(report.Hidden, err.Error())
			return nil
		case err != nil:
			return err
		}
		for _, o := range list[:min(len(list), limit)] {
			objects, refs[o] = append(objects, o), client.Ref{Resource: at, Namespace: o.GetNamespace(), Name: o.GetName()}
			if pod, ok := o.(*corev1.Pod); ok {
				report.Pods[pod.Status.Phase]++
			}
		}
		return nil
	}
	namespaced, others := why.Judged()
	for _, at := range namespaced {
		if err := read(at, namespace, math.MaxInt); err != nil {
			return nil, err
		}
	}
	if namespace == "" {
		for _, at := range others {
			if err := read(at, "", math.MaxInt); err != nil {
				return nil, err
			}
		}
	}
	for _, res := range s.Registry.Resources() {
		if res.Schema != nil && res.View != nil && res.View.Of == res.GVR && (res.Namespaced || namespace == "") {
			if err := read(res.GVR, namespace, maxCustom); err != nil {
				return nil, err
			}
		}
	}
	suspects := why.Suspects(objects, now)
	for i, o := range suspects {
		if len(report.Problems) == why.MaxProblems || i == maxExplained {
			report.More = len(suspects) - i
			break
		}
		f, err := facts.Collect(ctx, reader, refs[o], now)
		if apierrors.IsNotFound(err) {
			continue // deleted meanwhile
		} else if err != nil {
			return nil, err
		}
		if a := why.Of(f); a.Do != "" {
			report.Problems = append(report.Problems, why.Problem{Kind: words.Kind(o),
				Resource: refs[o].Resource.GroupResource().String(), Namespace: o.GetNamespace(), Name: o.GetName(), Answer: a})
		}
	}
	return report, nil
}

// resourceNamed returns the resource with this kind, plural, singular or short name, which may be followed by a dot and
// the group, or the version and the group. It prefers the stored version of a custom kind, which needs no conversion.
func (s *Explainer) resourceNamed(text string) (*registry.Resource, error) {
	name, group, exact := strings.Cut(strings.ToLower(text), ".")
	hint := "; kubectl api-resources lists them"
	var view *registry.Resource
	for _, res := range s.Registry.Resources() {
		names := append([]string{res.GVR.Resource, res.SingularName(), strings.ToLower(res.Kind)}, res.ShortNames...)
		of := !exact || res.GVR.Group == group || res.GVR.Version+"."+res.GVR.Group == group
		switch {
		case res.Virtual:
		case slices.Contains(names, name) && of && res.Stored():
			return &res, nil
		case slices.Contains(names, name) && of && (view == nil || res.View.Of == res.GVR):
			view = &res
		}
		if i := slices.IndexFunc(names, func(n string) bool { return n != name && spelling.Similar(n, name) }); i >= 0 &&
			!res.Virtual {
			hint = fmt.Sprintf("; did you mean %s?", names[i])
		}
	}
	if view != nil {
		return view, nil
	}
	return nil, apierrors.NewBadRequest(
		fmt.Sprintf("the kind must be a kind, a resource or a short name that the server stores, got %q%s", text, hint))
}

// userReader reads with the rights of a user.
type userReader struct {
	*Explainer
	user auth.User
}

func (p userReader) may(ctx context.Context, verb string, ref client.Ref) error {
	at := ref.Resource
	return p.Guard.Authorize(ctx, auth.Attributes{User: p.user, Verb: verb, Namespace: ref.Namespace,
		Group: at.Group, Version: at.Version, Resource: at.Resource, Subresource: ref.Subresource, Name: ref.Name})
}

// Get implements facts.Reader.
func (p userReader) Get(ctx context.Context, ref client.Ref) (client.Object, error) {
	if err := p.may(ctx, "get", ref); err != nil {
		return nil, err
	}
	return p.Registry.Get(ctx, ref)
}

// List implements facts.Reader.
func (p userReader) List(ctx context.Context, sel client.Selector) ([]client.Object, string, error) {
	if err := p.may(ctx, "list", client.Ref{Resource: sel.Resource, Namespace: sel.Namespace}); err != nil {
		return nil, "", err
	}
	return p.Registry.List(ctx, sel)
}

// connectTimeout limits a connection to a pod.
const connectTimeout = 200 * time.Millisecond

// Refuses implements facts.Reader. It returns false for users who may not forward ports to the pod, because they cannot
// find out the same by themselves.
func (p userReader) Refuses(ctx context.Context, pod *corev1.Pod, port int32) bool {
	ref := client.Ref{Resource: client.Pods, Namespace: pod.Namespace, Name: pod.Name, Subresource: "portforward"}
	if p.Connect == nil || pod.Status.PodIP == "" || p.may(ctx, "create", ref) != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := p.Connect(ctx, "tcp", net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(int(port))))
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Tunnel implements facts.Reader.
func (p userReader) Tunnel(node string) nodetunnel.State { return p.Explainer.Tunnel(node) }

// Limits for the part of a log that is read.
const (
	logLines = 20
	logBytes = 16 << 10
	logTime  = 5 * time.Second // a machine that is down must not hold up the explanation
)

// Log implements facts.Reader.
func (p userReader) Log(ctx context.Context, pod *corev1.Pod, container string, previous bool) (string, error) {
	ref := client.Ref{Resource: client.Pods, Namespace: pod.Namespace, Name: pod.Name, Subresource: "log"}
	if err := p.may(ctx, "get", ref); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, logTime)
	defer cancel()
	node, err := p.Node(ctx, pod.Spec.NodeName)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	err = node.Logs(ctx, pod,
		&corev1.PodLogOptions{Container: container, Previous: previous, TailLines: new(int64(logLines)),
			LimitBytes: new(int64(logBytes))}, &out)
	return out.String(), err
}
