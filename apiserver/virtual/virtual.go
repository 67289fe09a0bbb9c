// Package virtual answers for what is computed instead of stored: reviews, component
// statuses, metrics, and what is posted below objects as bindings, evictions and
// tokens.
package virtual

import (
	"context"
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/access/auth"
	"monopod/apiserver/client"
	"monopod/apiserver/registry/kind"
)

// Answers are what is computed instead of stored: by virtual resource, or by
// subresource, whose Resource is then "serviceaccounts/token". The kinds must
// list them too (kind.Resource.Virtual, Subresources), and say what a POST takes.
type Answers map[schema.GroupVersionResource]Answer

// Answer computes one of them. A function that is nil is a verb that is not
// served. What they return has its TypeMeta set.
type Answer struct {
	// Create answers a POST, with 201. obj has the path's namespace and, for a
	// subresource, the path's name.
	Create func(ctx context.Context, ref client.Ref, obj kind.Object) (runtime.Object, error)
	Get    func(ctx context.Context, ref client.Ref) (kind.Object, error)
	List   func(ctx context.Context, sel client.Selector) ([]kind.Object, error)
}

// Config of the answers. API, Guard, Authenticator and Clock are required.
type Config struct {
	API           API
	Guard         Guard
	Authenticator auth.Authenticator // of tokens that are reviewed
	Checks        []Check            // of the components
	Usage         Usage              // nil: nothing is known
	Clock         clock.PassiveClock
}

// Check is one of the server's own, by its name.
type Check struct {
	Name string
	Ask  func(ctx context.Context) error
}

// API is the part of the registry that takes what is posted below an object.
type API interface {
	Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error)
}

// Guard says what a user may do.
type Guard interface {
	Allows(ctx context.Context, a auth.Attributes) (allowed bool, reason string, err error)
	// Rules are all that the user may do in the namespace.
	Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error)
}

type virtual struct{ Config }

// New are those of the server itself and others.
func New(cfg Config, others Answers) Answers {
	v, all := &virtual{cfg}, Answers{}
	for _, some := range []Answers{v.pods(), v.reviews(), v.components(), v.tokens(), v.metrics(), others} {
		maps.Copy(all, some)
	}
	return all
}
