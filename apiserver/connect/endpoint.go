package connect

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"monopod/apiserver/kit/client"
	"monopod/apiserver/request"
)

// podHost returns the address of a pod with the given port, else the first port that the pod declares, else without a
// port.
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

// nodeHost returns the address of a port of the node.
func nodeHost(node *corev1.Node, port string) (string, error) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return join(a.Address, port)
		}
	}
	return "", apierrors.NewServiceUnavailable(
		fmt.Sprintf("no preferred addresses found; known addresses: %v", node.Status.Addresses))
}

// kubeletPort is the default port of a kubelet.
const kubeletPort = "10250"

// isKubelet reports whether a port of the node is that of its kubelet: the agent in this process, or another machine's.
func isKubelet(node *corev1.Node, port string) bool {
	if at := node.Status.DaemonEndpoints.KubeletEndpoint.Port; at != 0 {
		return port == "" || port == strconv.Itoa(int(at))
	}
	return port == "" || port == kubeletPort
}

// proxyNode passes the request to the kubelet of the node. ref contains the node's name as in the path, with scheme and
// port. Opening a stream requires the verb create: users who may only get nodes must not reach their pods.
func (c *Connector) proxyNode(w http.ResponseWriter, r *http.Request, ref client.Ref, name, path string) error {
	plain, err := url.PathUnescape(cmp.Or(path, "/"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if a := request.Attributes(r, ref); isStream(plain) && a.Verb != "create" {
		a.Verb = "create"
		if err := c.Guard.Authorize(r.Context(), a); err != nil {
			return err
		}
	}
	if err := permitTerminal(r, plain); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(c.Stop, cancel)()
	return c.serveNode(w, r.WithContext(ctx), name, plain, cmp.Or(path, "/"))
}
