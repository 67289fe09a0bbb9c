// Package registry implements the API without HTTP: everything between a client's request and the store.
//
// A Registry implements client.Client for a list of Resources, one for each kind: admission, metadata, defaults,
// validation, optimistic locking, subresources, and deletion in two phases. Its errors are those of
// k8s.io/apimachinery/pkg/api/errors; package apierror translates errors of the store.
//
//   - bootstrap.go: creates the objects of a new cluster
//   - catalogue.go: the served resources, built-in and custom
//   - metrics.go: the kinds of metrics.k8s.io
//   - review.go: the kinds of authentication.k8s.io and authorization.k8s.io
package registry

import (
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/kit/query"
	"monopod/apiserver/registry/admission"
	"monopod/apiserver/registry/admission/match"
	"monopod/apiserver/registry/admission/plugins"
	"monopod/apiserver/registry/admission/policies"
	"monopod/apiserver/registry/admission/webhooks"
	"monopod/apiserver/registry/allocate"
	"monopod/apiserver/registry/apierror"
	"monopod/apiserver/registry/convert"
	"monopod/apiserver/registry/custom"
	"monopod/apiserver/registry/kind"
	"monopod/apiserver/registry/managed"
	"monopod/apiserver/registry/reload"
	"monopod/apiserver/registry/webhook"
	"monopod/store"
)

type (
	// Resource is kind.Resource.
	Resource = kind.Resource
	// Object is kind.Object.
	Object = kind.Object
)

// Config configures a Registry. The zero value is valid.
type Config struct {
	// Roles resolves the permissions of users, so that a role cannot grant more than its author has; nil: users may grant
	// everything.
	Roles plugins.Roles
	// Tokens issues service account tokens; nil: the registry issues none.
	Tokens Tokens
	Clock  clock.WithDelayedExecution // nil: the system's
	Log    *zap.Logger                // nil: no logs
	// Guard counts and logs the panics of watches; nil: the registry only logs them.
	Guard *guard.Guard

	// Dial connects to webhooks; nil: the system's dialer.
	Dial webhook.Dial

	Services allocate.Config // ranges of Services' addresses and ports

	// Establish is the maximum time that the creation of a CustomResourceDefinition waits until its kinds are served; 0:
	// the creation does not wait.
	Establish time.Duration

	// Off reports whether --controllers disables the named controller; nil: all controllers run.
	Off func(controller string) bool
	// DisabledPlugins are the names of disabled admission plugins.
	DisabledPlugins []string
	// Tolerations are the default tolerations of pods for failed nodes.
	Tolerations plugins.TolerationSeconds
}

// Registry serves resources from a store. It does not close the store.
type Registry struct {
	*Catalogue
	store          store.Store
	clock          clock.WithDelayedExecution
	log            *zap.Logger
	guard          *guard.Guard
	admission      admission.Chain
	hooks          *webhooks.Hooks
	policies       *policies.Policies
	dynamic        admission.Chain       // hooks and policies
	configurations reload.Configurations // the kinds that configure dynamic
	tokens         Tokens
	fields         *managed.Fields
	services       *allocate.Services
	kinds          *custom.Kinds
	off            func(controller string) bool
	establish      time.Duration
}

var _ client.Ordered = (*Registry)(nil)

// Kinds returns store.Config.Kind for a store of the resources.
func Kinds(resources []Resource) func(resource string) (store.Kind, bool) {
	kinds := make(map[string]store.Kind, len(resources))
	for _, r := range resources {
		if !r.Stored() {
			continue
		}
		kinds[r.StoreName()] = store.Kind{New: r.New, Durability: r.Durability}
	}
	return func(resource string) (store.Kind, bool) {
		k, ok := kinds[resource]
		if !ok && strings.Contains(resource, ".") { // a custom kind
			return store.Kind{New: custom.New}, true
		}
		return k, ok
	}
}

// New returns a Registry that serves resources from s, which was opened with Kinds(resources).
func New(s store.Store, resources []Resource, cfg Config) *Registry {
	r := &Registry{
		Catalogue: newCatalogue(resources), store: s, clock: cfg.Clock, log: cfg.Log, guard: cfg.Guard,
		tokens: cfg.Tokens, off: cfg.Off, establish: cfg.Establish,
	}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	if r.log == nil {
		r.log = zap.NewNop()
	}
	if r.guard == nil {
		r.guard = guard.Logging(r.log)
	}
	r.fields = managed.New(r.clock)
	r.kinds = custom.NewKinds(r.clock, webhook.Network{API: r, Dial: cfg.Dial})
	// The plugins that users configure: webhooks and policies.
	matching := match.Config{API: r, Versions: r.Versions, Authorizer: cfg.Roles}
	follower := reload.Follower{Store: s, Clock: r.clock, Log: r.log}
	r.hooks = webhooks.New(webhooks.Config{Config: matching, Follower: follower, Dial: cfg.Dial})
	types := func(res *Resource, sub string) (managedfields.TypeConverter, error) {
		return r.fields.Types(managed.Target{Resource: res, Subresource: sub})
	}
	r.policies = policies.New(policies.Config{Config: matching, Follower: follower, Kind: r.FindKind, Types: types})
	mutating, validating := r.policies.Plugins()
	chain := r.hooks.Plugins() // mutating, validating
	r.dynamic = slices.Insert(slices.Insert(chain, 1, validating), 0, mutating).Without(cfg.DisabledPlugins)
	r.configurations = reload.Configurations{r.hooks.Configuration(), r.policies.Configuration()}
	r.admission = plugins.New(r, cfg.Roles, cfg.Tolerations, r.dynamic).Without(cfg.DisabledPlugins)
	r.services = newServices(r, cfg.Services)
	return r
}

// Entry is Get with the encoded object.
func (r *Registry) Entry(ctx context.Context, ref client.Ref) (*store.Entry, error) {
	res, err := r.FindStored(ref.Resource)
	if err != nil {
		return nil, err
	}
	e, err := r.store.Get(ctx, r.Base(res).Key(ref.Namespace, ref.Name))
	if err != nil {
		return nil, apierror.Of(err, res, ref.Name)
	}
	return convert.Entry(ctx, res, e)
}

// Get implements client.Client. For a scale subresource it returns the Scale.
func (r *Registry) Get(ctx context.Context, ref client.Ref) (Object, error) {
	e, err := r.Entry(ctx, ref)
	if err != nil {
		return nil, err
	}
	if ref.Subresource == "" {
		return e.Object, nil
	}
	res, err := r.FindStored(ref.Resource)
	if err != nil {
		return nil, err
	}
	sub := res.Subresource(ref.Subresource)
	switch {
	case sub == nil:
		return nil, apierror.NoSubresource(ref)
	case sub.Scale != nil:
		return sub.Scale.Of(e.Object), nil
	}
	return e.Object, nil
}

// Entries is List with the encoded objects as stored; convert.Each converts them.
func (r *Registry) Entries(ctx context.Context, sel client.Selector) ([]*store.Entry, int64, error) {
	_, entries, rev, err := r.entries(ctx, sel)
	return entries, rev, err
}

// entries returns the selected objects as they are stored.
func (r *Registry) entries(ctx context.Context, sel client.Selector) (*Resource, []*store.Entry, int64, error) {
	res, err := r.FindStored(sel.Resource)
	if err != nil {
		return nil, nil, 0, err
	}
	s, err := selectorOf(res, r.Base(res), sel)
	if err != nil {
		return nil, nil, 0, err
	}
	entries, rev, err := r.store.List(ctx, s)
	if err != nil {
		return nil, nil, 0, apierror.Of(err, res, "")
	}
	return res, entries, rev, nil
}

// List implements client.Client.
func (r *Registry) List(ctx context.Context, sel client.Selector) ([]Object, string, error) {
	res, entries, rev, err := r.entries(ctx, sel)
	if err != nil {
		return nil, "", err
	}
	objs := make([]Object, len(entries))
	if convert.SkipsConversion(ctx, res) {
		for i, e := range entries {
			objs[i] = convert.Unconverted(res, e.Object)
		}
		return objs, formatRevision(rev), nil
	}
	if entries, err = convert.Entries(ctx, res, entries); err != nil {
		return nil, "", err
	}
	for i, e := range entries {
		objs[i] = e.Object
	}
	return objs, formatRevision(rev), nil
}

// Changes is Watch with encoded objects and progress events. Its entries are as stored; convert.Entry converts them.
// EventFor translates its events by the returned selector.
func (r *Registry) Changes(ctx context.Context, sel client.Selector,
	rev int64) (*store.Changes, store.Selector, error) {
	res, err := r.FindStored(sel.Resource)
	if err != nil {
		return nil, store.Selector{}, err
	}
	s, err := selectorOf(res, r.Base(res), sel)
	if err != nil {
		return nil, s, err
	}
	changes, err := r.store.Watch(ctx, s, rev)
	return changes, s, apierror.Of(err, res, "")
}

// EventFor translates an event for a watch on sel: an object that starts to match is added, an object that stops
// matching is deleted.
func EventFor(sel store.Selector, ev *store.Event) (watch.EventType, *store.Entry) {
	switch was, is := sel.Matches(ev.Old), sel.Matches(ev.New); {
	case was && is:
		return watch.Modified, ev.New
	case is:
		return watch.Added, ev.New
	default:
		return watch.Deleted, ev.Gone()
	}
}

// Watch implements client.Client.
func (r *Registry) Watch(ctx context.Context, sel client.Selector, resourceVersion string) (<-chan watch.Event, error) {
	rev, err := query.Revision(resourceVersion)
	if err != nil {
		return nil, err
	}
	res, err := r.FindStored(sel.Resource)
	if err != nil {
		return nil, err
	}
	changes, s, err := r.Changes(ctx, sel, rev)
	if err != nil {
		return nil, err
	}
	out := make(chan watch.Event)
	go func() {
		defer close(out)
		changes.Each(ctx, func(ev *store.Event) bool {
			if ev.Progress() && !sel.Bookmarks {
				return true
			}
			e, ok := guardedEvent(ctx, r.guard, res, s, ev)
			select {
			case out <- e:
				return ok
			case <-ctx.Done():
				return false
			}
		})
	}()
	return out, nil
}

// guardedEvent is watchEvent with recovery from panics. After a panic it returns an Error event and false, which ends
// the watch.
func guardedEvent(ctx context.Context, g *guard.Guard, res *Resource, s store.Selector,
	ev *store.Event) (e watch.Event, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			g.Caught("watch", res.GVR.Resource, &guard.Panic{Value: p, Stack: debug.Stack()})
			status := apierrors.NewInternalError(errors.New("unexpected panic; the log of the server has the details")).Status()
			e, ok = watch.Event{Type: watch.Error, Object: &status}, false
		}
	}()
	return watchEvent(ctx, res, s, ev), true
}

// watchEvent converts a change to the event that the client of a watch gets.
func watchEvent(ctx context.Context, res *Resource, s store.Selector, ev *store.Event) watch.Event {
	if ev.Lagged() {
		status := apierror.Expired("too old resource version: the watch fell behind").Status()
		return watch.Event{Type: watch.Error, Object: &status}
	}
	if ev.Progress() {
		mark := res.New()
		mark.SetResourceVersion(formatRevision(ev.Rev))
		return watch.Event{Type: watch.Bookmark, Object: mark}
	}
	typ, e := EventFor(s, ev)
	if convert.SkipsConversion(ctx, res) {
		return watch.Event{Type: typ, Object: convert.Unconverted(res, e.Object)}
	}
	obj, err := convert.Of(ctx, res, e.Object)
	if err == nil {
		return watch.Event{Type: typ, Object: obj}
	}
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		api = apierrors.NewInternalError(err)
	}
	status := api.Status()
	return watch.Event{Type: watch.Error, Object: &status}
}

// Newest implements client.Ordered. It returns false if the store is not in memory.
func (r *Registry) Newest(resource schema.GroupVersionResource) (int64, bool) {
	s, ok := r.store.(interface{ Newest(resource string) int64 })
	if !ok {
		return 0, false
	}
	res, err := r.FindStored(resource)
	if err != nil {
		return 0, false
	}
	return s.Newest(r.Base(res).Key("", "").Resource), true
}

// ConfiguredAdmission returns the configuration of r's webhooks and policies. The caller must load it before r serves
// requests.
func ConfiguredAdmission(r *Registry) reload.Configurations { return r.configurations }

// Revision returns the current revision.
func (r *Registry) Revision() int64 { return r.store.Revision() }

// JSON returns the encoding of obj: the store's bytes if obj is the stored object.
func (r *Registry) JSON(ctx context.Context, obj Object) ([]byte, error) {
	if res := r.FindFor(obj); res != nil && !res.Virtual && r.Base(res) != nil {
		e, err := r.store.Get(ctx, r.Base(res).Key(obj.GetNamespace(), obj.GetName()))
		if err == nil && e.Object == obj {
			return e.JSON(), nil
		}
	}
	return json.Marshal(obj)
}

func formatRevision(rev int64) string { return strconv.FormatInt(rev, 10) }

// dryRunKey is the context key of writes that are validated but not stored.
type dryRunKey struct{}

// DryRun returns a context in which Create, Update and Delete do everything but store the result.
func DryRun(ctx context.Context) context.Context { return context.WithValue(ctx, dryRunKey{}, true) }

func isDryRun(ctx context.Context) bool { return ctx.Value(dryRunKey{}) != nil }

// warnKey is the context key of the function for warnings.
type warnKey struct{}

// WithWarnings returns a context whose warnings go to warn. A retried write may repeat its warnings.
func WithWarnings(ctx context.Context, warn func(text string)) context.Context {
	return context.WithValue(ctx, warnKey{}, warn)
}

// Warn sends a warning to the client of ctx.
func Warn(ctx context.Context, text string) {
	if warn, ok := ctx.Value(warnKey{}).(func(string)); ok {
		warn(text)
	}
}

// warnings sends the kind's warnings about next to the client of ctx.
func warnings(ctx context.Context, res *Resource, next, cur Object) {
	if res.Warnings == nil || ctx.Value(warnKey{}) == nil {
		return
	}
	for _, text := range res.Warnings(next, cur) {
		Warn(ctx, text)
	}
}

// dryRunResult carries the result of a dry run out of a store.Change as an error, so that the store writes nothing.
type dryRunResult struct{ obj Object }

func (dryRunResult) Error() string { return "dry run" }

// now returns the time in the precision of metadata: whole seconds.
func (r *Registry) now() metav1.Time { return metav1.NewTime(r.clock.Now()).Rfc3339Copy() }
