// Package rbac authorizes by the stored Roles, ClusterRoles and their bindings.
//
// An Authorizer starts to watch them and to keep an index by subject at the first request: an installation whose only
// user is the admin needs neither. A change takes effect when its event arrives, some microseconds after the write.
package rbac

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

// listTimeout limits how long a request waits for the roles and bindings.
const listTimeout = 10 * time.Second

// Config configures an Authorizer. The zero value works.
type Config struct {
	Clock clock.Clock // nil: the real one
	Log   *zap.Logger // nil: silent
}

// Authorizer implements auth.Authorizer. Run must be running.
type Authorizer struct {
	cfg   Config
	start sync.Once
	begun chan struct{} // closed by the first request
	ready chan struct{} // closed when all objects are listed

	mu      sync.Mutex // guards objects, missing, current
	objects map[schema.GroupVersionResource]map[key]client.Object
	missing int    // resources not listed yet
	current *index // nil: must be built again
}

var _ auth.Authorizer = (*Authorizer)(nil)

// New returns an Authorizer.
func New(cfg Config) *Authorizer {
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	if cfg.Log == nil {
		cfg.Log = zap.NewNop()
	}
	return &Authorizer{
		cfg: cfg, begun: make(chan struct{}), ready: make(chan struct{}),
		objects: map[schema.GroupVersionResource]map[key]client.Object{}, missing: len(resources()),
	}
}

func resources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{client.Roles, client.RoleBindings, client.ClusterRoles,
		client.ClusterRoleBindings}
}

// Authorize implements auth.Authorizer. The reason of a refusal names roles that are bound to the user and do not
// exist.
func (z *Authorizer) Authorize(ctx context.Context, a auth.Attributes) (bool, string, error) {
	x, err := z.index(ctx)
	if err != nil {
		return false, "", err
	}
	var absent []string
	for g := range x.grantsOf(a.User, a.Namespace) {
		rules, ok := x.rules(g)
		if !ok {
			absent = append(absent, notFound(g.role))
		}
		for i := range rules {
			if allows(&rules[i], &a) {
				return true, fmt.Sprintf("RBAC: allowed by %s of %s to %s", g.binding, describe(g.role.Kind, g.role.Name),
					describeSubject(g.to)), nil
			}
		}
	}
	if len(absent) == 0 {
		return false, "", nil
	}
	slices.Sort(absent)
	return false, "RBAC: " + list(slices.Compact(absent)), nil
}

// Rules returns the rules of everything that u may do in the namespace. The error names roles that do not exist.
func (z *Authorizer) Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error) {
	x, err := z.index(ctx)
	if err != nil {
		return nil, err
	}
	var all []rbacv1.PolicyRule
	var absent []error
	for g := range x.grantsOf(u, namespace) {
		rules, ok := x.rules(g)
		if !ok {
			absent = append(absent, errors.New(notFound(g.role)))
		}
		all = append(all, rules...)
	}
	return all, errors.Join(absent...)
}

// index returns the current index; the first call starts the watches.
func (z *Authorizer) index(ctx context.Context) (*index, error) {
	z.start.Do(func() { close(z.begun) })
	select {
	case <-z.ready:
	default:
		if err := z.wait(ctx); err != nil {
			return nil, err
		}
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.current == nil {
		z.current = newIndex(z.objects)
	}
	return z.current, nil
}

func (z *Authorizer) wait(ctx context.Context) error {
	timeout := z.cfg.Clock.NewTimer(listTimeout)
	defer timeout.Stop()
	select {
	case <-z.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timeout.C():
		return errors.New("failed to list the roles and their bindings")
	}
}

func describe(kind, name string) string { return fmt.Sprintf("%s %q", kind, name) }

func describeSubject(s rbacv1.Subject) string {
	if s.Kind == rbacv1.ServiceAccountKind {
		return describe(s.Kind, s.Name+"/"+s.Namespace)
	}
	return describe(s.Kind, s.Name)
}

func notFound(role rbacv1.RoleRef) string {
	return fmt.Sprintf("%s.%s %q not found", strings.ToLower(role.Kind), rbacv1.GroupName, role.Name)
}

// list formats texts like upstream's aggregate errors.
func list(texts []string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
