package connect

import (
	"context"
	"crypto/tls"
	"net/http"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"monopod/apiserver/auth"
	"monopod/apiserver/kit/client"
)

// Config configures a Connector. API, Guard, Gate, Fail, Stop, Clock and Log are required.
type Config struct {
	API   API
	Guard Guard
	Gate  Gate
	// Fail sends the error of a request that was not proxied.
	Fail func(w http.ResponseWriter, r *http.Request, err error)
	// Node returns the node of this process if it has the name, otherwise nil; nil: this process runs no node.
	Node func(name string) (client.Node, error)
	// Kubelets returns the TLS configuration for kubelets of other machines; nil: they are not called.
	Kubelets func() (*tls.Config, error)
	// Pods connects to pods that the machine's network cannot reach; nil: there are none.
	Pods PodNetwork
	// OwnUsage is the usage of the node of this process; nil: not available.
	OwnUsage OwnUsage
	Stop     context.Context // streams end with it
	Clock    clock.PassiveClock
	Log      *zap.Logger
}

// API reads the objects that clients connect to.
type API interface {
	Get(ctx context.Context, ref client.Ref) (client.Object, error)
	List(ctx context.Context, sel client.Selector) ([]client.Object, string, error)
	Delete(ctx context.Context, ref client.Ref, opts metav1.DeleteOptions) (client.Object, error)
	// Connect runs admission, and returns the object.
	Connect(ctx context.Context, ref client.Ref, opts runtime.Object) (client.Object, error)
}

// Guard authenticates and authorizes clients.
type Guard interface {
	WhoIs(r *http.Request) (auth.User, error)
	Authorize(ctx context.Context, a auth.Attributes) error
}

// Gate limits the requests in flight at the kubelet's port. leave ends a request.
type Gate interface {
	Hold(r *http.Request, ref client.Ref) (leave func(), err error) // a stream
	Pass(r *http.Request) (leave func(), err error)                 // anything else
}

// Connector connects clients to containers, pods, services and nodes.
type Connector struct {
	Config
	tunnels tunnels
	far     farUsage
}

// New returns a Connector.
func New(cfg Config) *Connector { return &Connector{Config: cfg, far: newFarUsage()} }
