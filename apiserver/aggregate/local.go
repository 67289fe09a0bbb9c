package aggregate

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"monopod/apiserver/kit/backoff"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/metrics"
	"monopod/apiserver/registry/apiservice"
)

// managed is the label of the APIServices that this server creates for its own groups.
const managed = "kube-aggregator.kubernetes.io/automanaged"

// register keeps the APIServices of this server's own groups and versions up to date until ctx ends.
func (c *Controller) register(ctx context.Context) error {
	retry := backoff.Retry{First: time.Second, Most: time.Minute}
	for ctx.Err() == nil {
		kinds, changed := c.cfg.Served()
		wanted := map[string]*apiservice.Service{}
		for i := range kinds {
			gv := kinds[i].GVR.GroupVersion()
			if gv != metrics.GroupVersion() { // users may install another server for it
				wanted[nameOf(gv)] = local(gv)
			}
		}
		err := c.sync(ctx, wanted)
		if err == nil {
			err = c.allowView(ctx, kinds)
		}
		if err != nil {
			if ctx.Err() == nil {
				c.deps.Log.Warn("failed to register the groups of this server", zap.Error(err))
			}
			retry.Wait(ctx, c.deps.Clock)
			continue
		}
		retry.Reset()
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return nil
}

func nameOf(gv schema.GroupVersion) string { return gv.Version + "." + gv.Group }

// sync creates the APIServices that are missing, and deletes those that this server created and no longer serves.
func (c *Controller) sync(ctx context.Context, wanted map[string]*apiservice.Service) error {
	all, err := client.List[*apiservice.Service](ctx, c.deps.Client, client.Selector{})
	if err != nil {
		return err
	}
	for _, s := range all {
		if wanted[s.Name] == nil && s.Labels[managed] != "" {
			_, err := c.deps.Client.Delete(ctx, client.Ref{Resource: client.APIServices, Name: s.Name},
				metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err
			}
		}
		delete(wanted, s.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if _, err := c.deps.Client.Create(ctx, wanted[name]); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// local returns the APIService of a group and version of this server.
func local(gv schema.GroupVersion) *apiservice.Service {
	s := &apiservice.Service{
		TypeMeta:   metav1.TypeMeta{Kind: "APIService", APIVersion: apiregistrationv1.SchemeGroupVersion.String()},
		ObjectMeta: metav1.ObjectMeta{Name: nameOf(gv), Labels: map[string]string{managed: "onstart"}},
		Spec: apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version,
			GroupPriorityMinimum: Priority(gv.Group), VersionPriority: VersionPriority(gv)},
	}
	if Priority(gv.Group) == usersPriority {
		s.Labels[managed] = "true"
	}
	return s
}

// VersionPriority orders the versions of a group of this server: v2 before v1, and stable versions before others. All
// versions of custom kinds have the same priority, and so are ordered by name.
func VersionPriority(gv schema.GroupVersion) int32 {
	const beta, first, flow, second, users = 9, 15, 21, 30, 100
	switch {
	case gv.Group == "flowcontrol.apiserver.k8s.io":
		return flow // as upstream
	case Priority(gv.Group) == usersPriority:
		return users
	case strings.Contains(gv.Version, "alpha"), strings.Contains(gv.Version, "beta"):
		return beta
	case gv.Version == "v2":
		return second
	}
	return first
}

// usersPriority is the priority of the groups of custom kinds.
const usersPriority = 1000

// Priority orders the groups: clients resolve short names in this order (upstream: groupPriorityMinimum).
func Priority(group string) int32 {
	switch group {
	case "":
		return 18000
	case "apps":
		return 17800
	case "events.k8s.io":
		return 17750
	case "authentication.k8s.io":
		return 17700
	case "authorization.k8s.io":
		return 17600
	case "autoscaling":
		return 17500
	case "batch":
		return 17400
	case "certificates.k8s.io":
		return 17300
	case "networking.k8s.io":
		return 17200
	case "policy":
		return 17100
	case "rbac.authorization.k8s.io":
		return 17000
	case "storage.k8s.io":
		return 16800
	case "apiextensions.k8s.io", "admissionregistration.k8s.io":
		return 16700
	case "scheduling.k8s.io":
		return 16600
	case "coordination.k8s.io":
		return 16500
	case "node.k8s.io":
		return 16300
	case "discovery.k8s.io":
		return 16200
	case "flowcontrol.apiserver.k8s.io":
		return 16100
	case "resource.k8s.io":
		return 15900
	case "storagemigration.k8s.io":
		return 15800
	case "apiregistration.k8s.io":
		return 20000
	}
	return usersPriority
}
