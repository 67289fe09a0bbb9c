// Package endpoint finds the endpoints of a Service, for parts of this process that connect to one without the
// node's rules for Services.
package endpoint

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"monopod/apiserver/kit/client"
)

// Reader reads the endpoints.
type Reader interface {
	Get(ctx context.Context, ref client.Ref) (client.Object, error)
	List(ctx context.Context, sel client.Selector) ([]client.Object, string, error)
}

// Of returns the address and port of a random ready endpoint of the service. port is a port's name or number; asked
// is the target as the client wrote it, for the error.
func Of(ctx context.Context, api Reader, service *corev1.Service, asked, port string) (string, error) {
	if number, err := strconv.ParseInt(port, 10, 32); err == nil {
		i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return int64(p.Port) == number })
		if i < 0 {
			return "", apierrors.NewServiceUnavailable(
				fmt.Sprintf("no service port %d found for service %q", number, service.Name))
		}
		port = service.Spec.Ports[i].Name
	}
	hosts, err := ofSlices(ctx, api, service, port)
	if err == nil && len(hosts) == 0 {
		hosts, err = ofEndpoints(ctx, api, service, port)
	}
	if err != nil {
		return "", err
	}
	if len(hosts) == 0 {
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("no endpoints available for service %q", asked))
	}
	return hosts[rand.N(len(hosts))], nil
}

// ofSlices returns the ready endpoints of the named port in the service's EndpointSlices.
func ofSlices(ctx context.Context, api Reader, service *corev1.Service, port string) ([]string, error) {
	objs, _, err := api.List(ctx, client.Selector{
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

// ofEndpoints returns those of its Endpoints, which users may write by hand.
func ofEndpoints(ctx context.Context, api Reader, service *corev1.Service, port string) ([]string, error) {
	obj, err := api.Get(ctx, client.Ref{Resource: client.Endpoints, Namespace: service.Namespace, Name: service.Name})
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
