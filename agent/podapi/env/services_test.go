package env_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/agent/podapi/env"
)

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func TestServices(t *testing.T) {
	t.Parallel()
	https := corev1.ServicePort{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}
	list := []*corev1.Service{
		service("default", "kubernetes", "10.43.0.1", https),
		service("default", "other", "10.43.0.2", https),
		service("ns", "my-db", "fd00::1", corev1.ServicePort{Port: 53, Protocol: corev1.ProtocolUDP}),
		service("ns", "headless", "None", https),
		service("ns", "none-yet", "", https),
	}
	api := `KUBERNETES_SERVICE_HOST=10.43.0.1
KUBERNETES_SERVICE_PORT=443
KUBERNETES_SERVICE_PORT_HTTPS=443
KUBERNETES_PORT=tcp://10.43.0.1:443
KUBERNETES_PORT_443_TCP=tcp://10.43.0.1:443
KUBERNETES_PORT_443_TCP_PROTO=tcp
KUBERNETES_PORT_443_TCP_PORT=443
KUBERNETES_PORT_443_TCP_ADDR=10.43.0.1`
	db := `
MY_DB_SERVICE_HOST=fd00::1
MY_DB_SERVICE_PORT=53
MY_DB_PORT=udp://[fd00::1]:53
MY_DB_PORT_53_UDP=udp://[fd00::1]:53
MY_DB_PORT_53_UDP_PROTO=udp
MY_DB_PORT_53_UDP_PORT=53
MY_DB_PORT_53_UDP_ADDR=fd00::1`
	if got := lines(env.Services(list, "ns", false)); got != api {
		t.Errorf("without links:\n%s", got)
	}
	if got := lines(env.Services(list, "ns", true)); got != api+db {
		t.Errorf("with links:\n%s", got)
	}
	own := append(slices.Clone(list), service("ns", "kubernetes", "10.43.9.9", https))
	slices.Reverse(own)
	if got := lines(env.Services(own, "ns", true)); !strings.Contains(got, "KUBERNETES_SERVICE_HOST=10.43.9.9") {
		t.Errorf("with a Service kubernetes in the namespace:\n%s", got)
	}
}

func lines(vars []env.Var) string {
	var out []string
	for _, v := range vars {
		out = append(out, v.Name+"="+v.Value)
	}
	return strings.Join(out, "\n")
}

// Variables of the container take precedence over those of Services, and may refer to them.
func TestMakeWithServices(t *testing.T) {
	t.Parallel()
	facts := env.Facts{Pod: &corev1.Pod{},
		Services: []env.Var{{Name: "DB_SERVICE_HOST", Value: "10.43.0.2"}, {Name: "DB_SERVICE_PORT", Value: "1"}}}
	c := &corev1.Container{Env: []corev1.EnvVar{{Name: "URL", Value: "http://$(DB_SERVICE_HOST):$(DB_SERVICE_PORT)"},
		{Name: "DB_SERVICE_PORT", Value: "2"}}}
	got, err := env.Make(c, facts, source{})
	if want := "URL=http://10.43.0.2:1\nDB_SERVICE_PORT=2\nDB_SERVICE_HOST=10.43.0.2"; err != nil || lines(got) != want {
		t.Errorf("%v\n%s", err, lines(got))
	}
}
