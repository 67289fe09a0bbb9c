// Package virtual computes resources that are not stored: reviews, component statuses, metrics, bindings, evictions and
// tokens. Explainer (explain.go) serves why.Path.
package virtual

import (
	"context"
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
	"monopod/apiserver/kit/health"
	"monopod/apiserver/registry/kind"
)

// Answers computes resources that are not stored. Its keys are virtual resources, or subresources, whose Resource is
// for example "serviceaccounts/token". The kinds must list them too (kind.Resource.Virtual, Subresources), with the
// type of the body of a POST.
type Answers map[schema.GroupVersionResource]Answer

// Answer computes a resource. A nil function is a verb that is not supported. The results have their TypeMeta set.
type Answer struct {
	// Create handles a POST, whose response has the code 201. obj has the namespace in the path and, for a subresource,
	// the name in the path.
	Create func(ctx context.Context, ref client.Ref, obj kind.Object) (runtime.Object, error)
	Get    func(ctx context.Context, ref client.Ref) (kind.Object, error)
	List   func(ctx context.Context, sel client.Selector) ([]kind.Object, error)
}

// Config configures New. API, Guard, Authenticator and Clock are required.
type Config struct {
	API           API
	Guard         Guard
	Authenticator auth.Authenticator // authenticates the tokens of TokenReviews
	Checks        []health.Check     // health checks of the components
	Usage         Usage              // nil: not available
	Clock         clock.PassiveClock
}

// API is the part of the registry that bindings, evictions and tokens need.
type API interface {
	Update(ctx context.Context, ref client.Ref, change client.Change) (client.Object, error)
}

// Guard authorizes users.
type Guard interface {
	Allows(ctx context.Context, a auth.Attributes) (allowed bool, reason string, err error)
	// Rules returns everything that the user may do in the namespace.
	Rules(ctx context.Context, u auth.User, namespace string) ([]rbacv1.PolicyRule, error)
}

type virtual struct{ Config }

// New returns the Answers of this package, with others added.
func New(cfg Config, others Answers) Answers {
	v, all := &virtual{cfg}, Answers{}
	for _, some := range []Answers{v.pods(), v.reviews(), v.components(), v.tokens(), v.metrics(), others} {
		maps.Copy(all, some)
	}
	return all
}
