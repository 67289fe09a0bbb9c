package connect

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/client"
	"monopod/apiserver/request"
)

// podHost is the address of the pod: at the given port, else the first port that it declares, else the scheme's
// default.
func podHost(pod *corev1.Pod, port string) (string, error) {
	if port == "" {
		for _, c := range pod.Spec.Containers {
			if len(c.Ports) > 0 {
				port = strconv.Itoa(int(c.Ports[0].ContainerPort))
				break
			}
		}
	}
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	return join(ip, port)
}

func join(ip, port string) (string, error) {
	switch {
	case net.ParseIP(ip) == nil:
		return "", apierrors.NewBadRequest("address not allowed")
	case port == "" && net.ParseIP(ip).To4() == nil:
		return "[" + ip + "]", nil
	case port == "":
		return ip, nil
	}
	return net.JoinHostPort(ip, port), nil
}

// nodeHost is the address of a port of the node.
func nodeHost(node *corev1.Node, port string) (string, error) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return join(a.Address, port)
		}
	}
	return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no preferred addresses found; known addresses: %v", node.Status.Addresses))
}

// kubeletPort is the default port of a kubelet.
const kubeletPort = "10250"

// isKubelet reports whether a port of the node is that of its agent, which is called in process.
func isKubelet(node *corev1.Node, port string) bool {
	if at := node.Status.DaemonEndpoints.KubeletEndpoint.Port; at != 0 {
		return port == "" || port == strconv.Itoa(int(at))
	}
	return port == "" || port == kubeletPort
}

// reachNode passes the request to the agent of the node; asked is the node's name as in the path. Users who only
// have the verb get must not reach its pods.
func (c *Connector) reachNode(w http.ResponseWriter, r *http.Request, asked client.Ref, name, path string) error {
	plain, err := url.PathUnescape(cmp.Or(path, "/"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if a := request.Attributes(r, asked); isStream(plain) && a.Verb != "create" {
		a.Verb = "create"
		if err := c.Guard.Authorize(r.Context(), a); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.Stop, cancel)()
	return c.askNode(w, r.WithContext(ctx), name, plain, cmp.Or(path, "/"))
}

// serviceHost is a random ready endpoint of the service. port is a port's name or number; asked is the target as
// the client wrote it.
func (c *Connector) serviceHost(ctx context.Context, service *corev1.Service, asked, port string) (string, error) {
	if number, err := strconv.ParseInt(port, 10, 32); err == nil {
		i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return int64(p.Port) == number })
		if i < 0 {
			return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", number, service.Name))
		}
		port = service.Spec.Ports[i].Name
	}
	hosts, err := c.sliceHosts(ctx, service, port)
	if err == nil && len(hosts) == 0 {
		hosts, err = c.endpointHosts(ctx, service, port)
	}
	if err != nil {
		return "", err
	}
	if len(hosts) == 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", asked))
	}
	return hosts[rand.N(len(hosts))], nil
}

// sliceHosts are the ready endpoints of the named port in the service's EndpointSlices.
func (c *Connector) sliceHosts(ctx context.Context, service *corev1.Service, port string) ([]string, error) {
	objs, _, err := c.API.List(ctx, client.Selector{
		Resource: client.EndpointSlices, Namespace: service.Namespace,
		Labels: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name}),
	})
	var hosts []string
	for _, obj := range objs {
		slice := obj.(*discoveryv1.EndpointSlice)
		for _, p := range slice.Ports {
			if p.Port == nil || p.Name != nil && *p.Name != port || p.Name == nil && port != "" {
				continue
			}
			for _, e := range slice.Endpoints {
				if (e.Conditions.Ready == nil || *e.Conditions.Ready) && len(e.Addresses) > 0 {
					hosts = append(hosts, net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*p.Port))))
				}
			}
		}
	}
	return hosts, err
}

// endpointHosts are those of its Endpoints, which users may write by hand.
func (c *Connector) endpointHosts(ctx context.Context, service *corev1.Service, port string) ([]string, error) {
	obj, err := c.API.Get(ctx, client.Ref{Resource: client.Endpoints, Namespace: service.Namespace, Name: service.Name})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, subset := range obj.(*corev1.Endpoints).Subsets {
		for _, p := range subset.Ports {
			if p.Name != port {
				continue
			}
			for _, a := range subset.Addresses {
				hosts = append(hosts, net.JoinHostPort(a.IP, strconv.Itoa(int(p.Port))))
			}
		}
	}
	return hosts, nil
}
