package aggregate

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/follow"
	"monopod/apiserver/kit/guard"
	"monopod/apiserver/registry/apiservice"
)

const (
	// checkEvery is the interval of checks of an APIService's server, and tries the number of attempts in a check (both as
	// upstream).
	checkEvery = 30 * time.Second
	tries      = 5
)

// Controller keeps APIServices and their Aggregator up to date.
type Controller struct {
	*Aggregator
	deps follow.Deps
	loop *follow.Loop[string]
}

// Controller returns the controller of a.
func (a *Aggregator) Controller(deps follow.Deps) *Controller {
	c := &Controller{Aggregator: a, deps: deps}
	of := func(sel client.Selector, names func(obj client.Object) []string) follow.Source[string] {
		return follow.Source[string]{Selector: sel, Keys: follow.Plain(func(old, new client.Object) []string {
			if new == nil {
				new = old
			}
			return names(new)
		})}
	}
	c.loop = follow.New(deps, follow.Config[string]{
		Name: c.Name(),
		Sources: []follow.Source[string]{
			of(client.Selector{Resource: client.APIServices},
				func(obj client.Object) []string { return []string{obj.GetName()} }),
			of(client.Selector{Resource: client.Services},
				func(obj client.Object) []string { return c.behind(obj.GetNamespace(), obj.GetName()) }),
			of(client.Selector{Resource: client.EndpointSlices}, func(obj client.Object) []string {
				return c.behind(obj.GetNamespace(), obj.GetLabels()[discoveryv1.LabelServiceName])
			}),
		},
		Reconcile: c.reconcile,
		Workers:   tries,
	})
	return c
}

// Name implements follow.Controller.
func (c *Controller) Name() string { return "aggregation" }

// Run implements follow.Controller.
func (c *Controller) Run(ctx context.Context) error {
	group, ctx := guard.With(ctx)
	group.Do(func() error { return c.register(ctx) })
	group.Do(func() error { return c.loop.Run(ctx) })
	return group.Wait()
}

// behind returns the APIServices that name a Service.
func (c *Controller) behind(namespace, name string) (names []string) {
	for _, b := range *c.now.Load() {
		if s := b.service.Spec.Service; s.Namespace == namespace && s.Name == name {
			names = append(names, b.service.Name)
		}
	}
	return names
}

func (c *Controller) reconcile(ctx context.Context, name string) (time.Duration, error) {
	s, err := client.Get[*apiservice.Service](ctx, c.deps.Client, "", name)
	if apierrors.IsNotFound(err) {
		version, group, _ := strings.Cut(name, ".")
		c.set(schema.GroupVersion{Group: group, Version: version}, nil)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	b := c.set(schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}, s)
	if b == nil {
		return 0, nil
	}
	is := c.check(ctx, b)
	if ctx.Err() != nil {
		return 0, nil
	}
	if err := c.report(ctx, s, is); err != nil {
		return 0, err
	}
	if is.Status != apiregistrationv1.ConditionTrue {
		return checkEvery / tries, nil
	}
	return checkEvery, nil
}

// report writes the condition if it has changed.
func (c *Controller) report(ctx context.Context, s *apiservice.Service,
	is apiregistrationv1.APIServiceCondition) error {
	was := apiservice.Available(s)
	if was != nil && was.Status == is.Status && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}
	c.deps.Log.Info("availability of an API server changed", zap.String("name", s.Name),
		zap.String("available", string(is.Status)), zap.String("reason", is.Reason), zap.String("message", is.Message))
	is.LastTransitionTime = metav1.NewTime(c.deps.Clock.Now())
	if was != nil && was.Status == is.Status {
		is.LastTransitionTime = was.LastTransitionTime
	}
	_, err := client.Update(ctx, c.deps.Client, s, "status", func(cur *apiservice.Service) error {
		cur.UID = s.UID
		if at := apiservice.Available(cur); at != nil {
			*at = is
			return nil
		}
		cur.Status.Conditions = append(cur.Status.Conditions, is)
		return nil
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// check returns the condition of a server, with upstream's reasons and messages.
func (c *Controller) check(ctx context.Context, b *backend) apiregistrationv1.APIServiceCondition {
	of := func(status apiregistrationv1.ConditionStatus, reason, format string,
		args ...any) apiregistrationv1.APIServiceCondition {
		return apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: status, Reason: reason,
			Message: fmt.Sprintf(format, args...)}
	}
	const no, unknown = apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown
	to := b.service.Spec.Service
	service, err := client.Get[*corev1.Service](ctx, c.deps.Client, to.Namespace, to.Name)
	switch {
	case apierrors.IsNotFound(err):
		return of(no, "ServiceNotFound", "service/%s in %q is not present", to.Name, to.Namespace)
	case err != nil:
		return of(unknown, "ServiceAccessError", "service/%s in %q cannot be checked due to: %v", to.Name, to.Namespace, err)
	case service.Spec.Type == corev1.ServiceTypeClusterIP:
		var port *corev1.ServicePort
		for i := range service.Spec.Ports {
			if service.Spec.Ports[i].Port == *to.Port {
				port = &service.Spec.Ports[i]
				break
			}
		}
		if port == nil {
			return of(no, "ServicePortError", "service/%s in %q is not listening on port %d", to.Name, to.Namespace, *to.Port)
		}
		slices, _, err := c.deps.Client.List(ctx, client.Selector{Resource: client.EndpointSlices, Namespace: to.Namespace,
			Labels: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: to.Name})})
		switch {
		case err != nil:
			return of(unknown, "EndpointsAccessError", "service/%s in %q cannot be checked due to: %v", to.Name, to.Namespace,
				err)
		case len(slices) == 0:
			return of(no, "EndpointsNotFound", "cannot find endpointslices for service/%s in %q", to.Name, to.Namespace)
		case !ready(slices, port.Name):
			return of(no, "MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", to.Name,
				to.Namespace, port.Name)
		}
	}
	for range tries {
		if err = b.discover(ctx, c.deps.Log); err == nil {
			return of(apiregistrationv1.ConditionTrue, "Passed", "all checks passed")
		}
	}
	return of(no, "FailedDiscoveryCheck", "%v", err)
}

// ready reports whether a slice has a ready endpoint with the port.
func ready(slices []client.Object, port string) bool {
	for _, obj := range slices {
		s := obj.(*discoveryv1.EndpointSlice)
		for _, p := range s.Ports {
			if p.Name == nil || *p.Name != port || p.Port == nil {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready == nil || *e.Conditions.Ready {
					return true
				}
			}
		}
	}
	return false
}

// discover reads the server's resources, which is also the check that the server works, and the hash of its OpenAPI
// document.
func (b *backend) discover(ctx context.Context, log *zap.Logger) error {
	name := "apis/" + b.service.Spec.Group + "/" + b.service.Spec.Version
	var list metav1.APIResourceList
	code, err := b.get(ctx, "/"+name, &list)
	switch {
	case err != nil:
		b.transport.CloseIdleConnections()
		return fmt.Errorf("failing or missing response from %s/%s: %w", b.url, name, err)
	case code != http.StatusOK:
		return fmt.Errorf("failing or missing response from %s/%s: bad status from %s/%s: %d", b.url, name, b.url, name, code)
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	next := *b.info.Load()
	next.resources, next.openAPI = list.APIResources, ""
	if _, err := b.get(ctx, "/openapi/v3", &index); err == nil {
		if at, err := url.Parse(index.Paths[name].ServerRelativeURL); err == nil {
			next.openAPI = at.Query().Get("hash")
		}
	}
	if next.openAPI2, err = b.readOpenAPI2(ctx, next.openAPI2, "/"+name+"/"); err != nil {
		log.Debug("failed to read the OpenAPI v2 document of an API server", zap.String("name", b.service.Name),
			zap.Error(err))
	}
	b.setInfo(next)
	return nil
}
