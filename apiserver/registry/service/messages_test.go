package service_test

import (
	"testing"

	"monopod/apiserver/registry/kind/kindtest"
	"monopod/apiserver/registry/service"
)

// TestMessages compares complete errors with upstream's.
func TestMessages(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ obj, want string }{
		{spec(clusterIP), `spec.ports: Required value`},
		{spec(clusterIP, `ports: [{port: 0, targetPort: 1}]`),
			`spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`},
		{spec(clusterIP, `ports: [{port: 80, protocol: tcp}]`),
			`spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`},
		{spec(clusterIP, `ports: [{port: 80, targetPort: 70000}]`),
			`spec.ports[0].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive`},
		{spec(clusterIP, `ports: [{name: a, port: 80}, {port: 81}]`), `spec.ports[1].name: Required value`},
		{spec(clusterIP, `ports: [{name: a, port: 80}, {name: a, port: 81}]`), `spec.ports[1].name: Duplicate value: "a"`},
		{spec(clusterIP, `ports: [{port: 80, nodePort: 30001}]`),
			"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		{spec(`type: Nonsense, ` +
			onePort), `spec.type: Unsupported value: "Nonsense": supported values: "ClusterIP", "ExternalName", ` +
			`"LoadBalancer", "NodePort"`},
		{spec(`type: NodePort, clusterIP: None, ` + onePort),
			`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`},
		{spec(`type: ExternalName, externalName: example.com, clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1]`),
			`spec.clusterIPs: Forbidden: may not be set for ExternalName services`},
		{spec(clusterIP, onePort, `sessionAffinity: Sometimes`),
			`spec.sessionAffinity: Unsupported value: "Sometimes": supported values: "ClientIP", "None"`},
		{spec(clusterIP, onePort, `sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}`),
			`spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than ` +
				`86400`},
		{spec(onePort, `clusterIP: 10.96.1.1, clusterIPs: [10.96.1.2]`),
			"spec.clusterIPs: Invalid value: [\"10.96.1.2\"]: first value must match `clusterIP`"},
		{spec(onePort, `clusterIP: nonsense, clusterIPs: [nonsense]`),
			`spec.clusterIPs[0]: Invalid value: "nonsense": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{spec(clusterIP, onePort, `externalIPs: [127.0.0.1]`),
			`spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		{spec(clusterIP, onePort, `loadBalancerSourceRanges: [10.0.0.0/8]`),
			"spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'"},
		{spec(clusterIP, onePort, `loadBalancerClass: a/b`),
			"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"},
		{spec(clusterIP, onePort, `externalTrafficPolicy: Local`),
			`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`},
		{balanced(`externalTrafficPolicy: Here`),
			`spec.externalTrafficPolicy: Unsupported value: "Here": supported values: "Cluster", "Local"`},
		{spec(clusterIP, onePort, `internalTrafficPolicy: Near`),
			`spec.internalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"`},
		{spec(`type: LoadBalancer, clusterIP: 10.96.1.1, clusterIPs: [10.96.1.1], ipFamilies: [IPv4], ports: [{port: 10250}]`), "spec.ports[0]: Invalid value: 10250: may not expose port 10250 externally since it is used by kubelet"},
	} {
		r := kindtest.Of(t, service.Resources(), "Service")
		errs := kindtest.Validate(r, kindtest.Create(t, r, c.obj), nil, "")
		if got := errs.ToAggregate(); got == nil || got.Error() != c.want {
			t.Errorf("%s:\n%v\nwant\n%s", c.obj, got, c.want)
		}
	}
}
