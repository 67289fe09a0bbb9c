package flow

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod/apiserver/auth"
)

func user(name string, groups ...string) auth.User {
	return auth.User{Name: name, Groups: append(groups, auth.Authenticated)}
}

// The default objects assign requests to the same schemas and levels as upstream.
func TestDefaultsClassify(t *testing.T) {
	t.Parallel()
	d := NewDispatcher(DispatcherConfig{Seats: 600, Metrics: prometheus.NewRegistry()})
	node := user("system:node:n", auth.Nodes)
	for name, c := range map[string]struct {
		Request
		want string
	}{
		"admin": {Request{User: auth.Admin, Verb: "create", Resource: "pods", Namespace: "a"}, "exempt exempt"},
		"probe": {Request{User: auth.User{Name: auth.Anonymous, Groups: []string{auth.Unauthenticated}},
			Verb: "get", Path: "/healthz"}, "probes exempt"},
		"node's lease": {Request{User: node, Verb: "update", Group: "coordination.k8s.io", Resource: "leases",
			Namespace: "kube-node-lease"}, "system-node-high node-high"},
		"node's status": {Request{User: node, Verb: "patch", Resource: "nodes", Subresource: "status"},
			"system-node-high node-high"},
		"node's pods": {Request{User: node, Verb: "list", Resource: "pods"}, "system-nodes system"},
		"scheduler's lease": {Request{User: user("system:kube-scheduler"), Verb: "update", Group: "coordination.k8s.io",
			Resource: "leases", Namespace: "kube-system"}, "system-leader-election leader-election"},
		"scheduler": {Request{User: user("system:kube-scheduler"), Verb: "create", Resource: "pods",
			Subresource: "binding", Namespace: "a"}, "kube-scheduler workload-high"},
		"controller": {Request{User: user("system:serviceaccount:kube-system:job-controller"), Verb: "get",
			Resource: "pods", Namespace: "a"}, "kube-system-service-accounts workload-high"},
		"account": {Request{User: user("system:serviceaccount:a:b", "system:serviceaccounts"), Verb: "get",
			Resource: "pods", Namespace: "a"}, "service-accounts workload-low"},
		"account of a namespace with the same prefix": {Request{User: user("system:serviceaccount:kube-system2:b",
			"system:serviceaccounts"), Verb: "get", Resource: "pods", Namespace: "a"}, "service-accounts workload-low"},
		"user": {Request{User: user("u"), Verb: "list", Resource: "secrets", Namespace: "a"},
			"global-default global-default"},
		"path":              {Request{User: user("u"), Verb: "get", Path: "/metrics"}, "global-default global-default"},
		"without any group": {Request{User: auth.User{Name: "u"}, Verb: "get", Path: "/metrics"}, "catch-all catch-all"},
	} {
		s := d.now.Load().classify(&c.Request)
		if got := s.name + " " + s.level.name; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	rule := func(resources, verbs, groups, namespaces []string, cluster bool) flowcontrolv1.PolicyRulesWithSubjects {
		return flowcontrolv1.PolicyRulesWithSubjects{
			Subjects: []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "*"}}},
			ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: verbs, APIGroups: groups, Resources: resources,
				Namespaces: namespaces, ClusterScope: cluster}},
		}
	}
	paths := func(urls ...string) flowcontrolv1.PolicyRulesWithSubjects {
		return flowcontrolv1.PolicyRulesWithSubjects{
			Subjects:         []flowcontrolv1.Subject{{Kind: "Group", Group: &flowcontrolv1.GroupSubject{Name: "*"}}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"get"}, NonResourceURLs: urls}},
		}
	}
	all := []string{"*"}
	pods := Request{Verb: "get", Resource: "pods", Namespace: "a"}
	for name, c := range map[string]struct {
		rule flowcontrolv1.PolicyRulesWithSubjects
		r    Request
		want bool
	}{
		"all":               {rule(all, all, all, all, false), pods, true},
		"another resource":  {rule([]string{"secrets"}, all, all, all, false), pods, false},
		"another verb":      {rule(all, []string{"list"}, all, all, false), pods, false},
		"another group":     {rule(all, all, []string{"apps"}, all, false), pods, false},
		"another namespace": {rule(all, all, all, []string{"b"}, true), pods, false},
		"cluster":           {rule(all, all, all, all, false), Request{Verb: "get", Resource: "pods"}, false},
		"cluster scope":     {rule(all, all, all, nil, true), Request{Verb: "get", Resource: "pods"}, true},
		"subresource": {rule([]string{"pods/log"}, all, all, all, false),
			Request{Verb: "get", Resource: "pods", Subresource: "log", Namespace: "a"}, true},
		"subresource of all": {rule(all, all, all, all, false), Request{Verb: "get", Resource: "pods",
			Subresource: "log", Namespace: "a"}, true},
		"resource, not subresource": {rule([]string{"pods"}, all, all, all, false),
			Request{Verb: "get", Resource: "pods", Subresource: "log", Namespace: "a"}, false},
		"path":                           {paths("/a"), Request{Verb: "get", Path: "/a"}, true},
		"below a path":                   {paths("/a/*"), Request{Verb: "get", Path: "/a/b"}, true},
		"a path with the same beginning": {paths("/a/*"), Request{Verb: "get", Path: "/ab"}, false},
		"a resource is not a path":       {paths("*"), pods, false},
	} {
		if got := matches(&c.rule, &c.r); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The default levels have as many seats as upstream.
func TestShares(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	NewDispatcher(DispatcherConfig{Seats: 600, Metrics: reg})
	text := scraped(reg)
	for level, want := range map[string][2]int{ // nominal, lower
		"catch-all": {13, 13}, "exempt": {0, 0}, "global-default": {49, 24}, "leader-election": {25, 25},
		"node-high": {98, 73},
		"system":    {74, 50}, "workload-high": {98, 49}, "workload-low": {245, 24},
	} {
		for i, name := range []string{"nominal", "lower"} {
			if line := fmt.Sprintf("apiserver_flowcontrol_%s_limit_seats{priority_level=%q} %d\n", name, level,
				want[i]); !strings.Contains(text, line) {
				t.Errorf("no %s", line)
			}
		}
	}
}

// scraped returns the response of /metrics.
func scraped(reg *prometheus.Registry) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// one returns a dispatcher with a level of one seat for everybody.
func one(queuing *flowcontrolv1.QueuingConfiguration) (*Dispatcher, *prometheus.Registry) {
	reg := prometheus.NewRegistry()
	d := NewDispatcher(DispatcherConfig{Seats: 1, Wait: time.Second, Metrics: reg})
	response := flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}
	if queuing != nil {
		response = flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue, Queuing: queuing}
	}
	d.Configure([]*flowcontrolv1.FlowSchema{{
		ObjectMeta: metav1.ObjectMeta{Name: "s", UID: "schema"},
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "l"}, MatchingPrecedence: 2,
			DistinguisherMethod: &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects:         []flowcontrolv1.Subject{{Kind: "User", User: &flowcontrolv1.UserSubject{Name: "*"}}},
				NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}},
			}},
		},
	}, {
		ObjectMeta: metav1.ObjectMeta{Name: "dangling"},
		Spec:       flowcontrolv1.FlowSchemaSpec{PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "gone"}, MatchingPrecedence: 1},
	}}, []*flowcontrolv1.PriorityLevelConfiguration{{
		ObjectMeta: metav1.ObjectMeta{Name: "l", UID: "level"},
		Spec: flowcontrolv1.PriorityLevelConfigurationSpec{Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{LimitResponse: response}},
	}})
	return d, reg
}

func TestRejects(t *testing.T) {
	t.Parallel()
	d, reg := one(nil)
	h := http.Header{}
	ticket := d.Enter(t.Context(), h, &Request{User: user("a"), Verb: "get", Path: "/x"})
	if ticket == nil || h.Get("X-Kubernetes-PF-FlowSchema-UID") != "schema" ||
		h.Get("X-Kubernetes-PF-PriorityLevel-UID") != "level" {
		t.Fatalf("%v %v", ticket, h)
	}
	if d.Enter(t.Context(), nil, &Request{User: user("b"), Verb: "get", Path: "/x"}) != nil {
		t.Error("admitted without a seat")
	}
	admin := &Request{User: user("c", auth.Masters), Verb: "get", Path: "/x"}
	exempt := d.Enter(t.Context(), nil, admin)
	if exempt == nil {
		t.Error("an admin was refused")
	}
	d.Leave(exempt)
	d.Leave(ticket)
	if ticket = d.Enter(t.Context(), nil, &Request{User: user("b"), Verb: "get", Path: "/x"}); ticket == nil {
		t.Error("a seat was not returned")
	}
	d.Leave(ticket)
	text := scraped(reg)
	for _, want := range []string{
		`apiserver_flowcontrol_rejected_requests_total{flow_schema="s",priority_level="l",reason="concurrency-limit"} 1`,
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="s",priority_level="l"} 2`,
		`apiserver_flowcontrol_dispatched_requests_total{flow_schema="exempt",priority_level="exempt"} 1`,
		`apiserver_flowcontrol_current_executing_requests{flow_schema="s",priority_level="l"} 0`,
		`apiserver_flowcontrol_request_execution_seconds_count{flow_schema="s",priority_level="l",type="regular"} 2`,
		`apiserver_flowcontrol_current_limit_seats{priority_level="l"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s", want)
		}
	}
}

// Waiting requests are in the dumps, and time out.
func TestDumps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, reg := one(&flowcontrolv1.QueuingConfiguration{Queues: 1, HandSize: 1, QueueLengthLimit: 5})
		ticket := d.Enter(t.Context(), nil, &Request{User: user("a"), Verb: "get", Path: "/x"})
		ctx, cancel := context.WithCancel(t.Context())
		for _, r := range []Request{{User: user("b"), Verb: "get", Path: "/one"}, {User: user("b\nc"), Verb: "put",
			Path: "/two"}} {
			go d.Enter(ctx, nil, &r)
			synctest.Wait()
		}
		dump := func(name string) string {
			w := httptest.NewRecorder()
			path, query, _ := strings.Cut("/debug/api_priority_and_fairness/"+name, "?")
			d.Dumps()[path](w, httptest.NewRequest(http.MethodGet, path+"?"+query, nil))
			return strings.Join(strings.FieldsFunc(w.Body.String(), func(r rune) bool { return r == ' ' }), "")
		}
		admin := d.Enter(t.Context(), nil, &Request{User: user("c", auth.Masters), Verb: "list", Path: "/api/v1/nodes",
			Version: "v1", Resource: "nodes"})
		for name, want := range map[string]string{
			"dump_priority_levels": "l,1,false,false,2,1,1,0,0,0\n",
			"dump_queues":          "l,-1,0,1,1,0.00000000ss,0,0,0.00000000ss\nl,0,2,0,0,0.00000000ss,2,2,0.00000000ss\n",
			"dump_requests": "exempt,exempt,-1,-1,,2000-01-01T00:00:00Z,1,0,0s,2000-01-01T00:00:00Z\n" +
				"l,s,0,0,b,2000-01-01T00:00:00Z,1,0,0s,0001-01-01T00:00:00Z\n" +
				"l,s,0,1,bc,2000-01-01T00:00:00Z,1,0,0s,0001-01-01T00:00:00Z\n" +
				"l,s,-1,-1,a,2000-01-01T00:00:00Z,1,0,0s,2000-01-01T00:00:00Z\n",
			"dump_requests?includeRequestDetails=1": "exempt,exempt,-1,-1,,2000-01-01T00:00:00Z,1,0,0s,2000-01-01T00:00:00Z,c,list,/api/v1/nodes,,,v1,nodes,\n" +
				"l,s,0,0,b,2000-01-01T00:00:00Z,1,0,0s,0001-01-01T00:00:00Z,b,get,/one,,,,,\n",
		} {
			if got := dump(name); !strings.Contains(got, want) {
				t.Errorf("%s: %s", name, got)
			}
		}
		time.Sleep(time.Second / 2)
		for _, want := range []string{
			`request_dispatch_no_accommodation_total{flow_schema="s",priority_level="l"} 2`,
			`current_inqueue_seats{flow_schema="s",priority_level="l"} 2`,
			`request_queue_length_after_enqueue_sum{flow_schema="s",priority_level="l"} 3`,
			`priority_level_seat_utilization_count{phase="executing",priority_level="l"} 5e+08`,
			`priority_level_seat_utilization_sum{phase="executing",priority_level="l"} 5e+08`,
			`priority_level_seat_utilization_bucket{phase="executing",priority_level="l",le="0.99"} 0`,
			`demand_seats_sum{priority_level="l"} 1.5e+09`, `demand_seats_bucket{priority_level="l",le="2.8"} 0`,
			`demand_seats_bucket{priority_level="l",le="4"} 5e+08`,
		} {
			if !strings.Contains(scraped(reg), want) {
				t.Errorf("no %s in %s", want, scraped(reg))
			}
		}
		cancel()
		synctest.Wait()
		if got := dump("dump_priority_levels"); !strings.Contains(got, "l,0,false,false,0,1,1,0,0,2\n") {
			t.Error(got)
		}
		if d.Enter(t.Context(), nil, &Request{User: user("b"), Verb: "get", Path: "/x"}) != nil {
			t.Error("admitted although the seat is taken")
		}
		d.Leave(admin)
		d.Leave(ticket)
		if got := dump("dump_requests"); strings.Count(got, "\n") != 1 {
			t.Errorf("requests that have ended: %s", got)
		}
		for _, reason := range []string{`"time-out"} 1`, `"cancelled"} 2`} {
			if want := `rejected_requests_total{flow_schema="s",priority_level="l",reason=` +
				reason; !strings.Contains(scraped(reg), want) {
				t.Errorf("no %s", want)
			}
		}
	})
}

// The metrics of a schema and a level are removed with them.
func TestMetricsOfRemovedObjects(t *testing.T) {
	t.Parallel()
	d, reg := one(nil)
	ticket := d.Enter(t.Context(), nil, &Request{User: user("a"), Verb: "get", Path: "/x"})
	d.Configure(nil, nil)
	d.Leave(ticket)
	if text := scraped(reg); strings.Contains(text, `"l"`) || strings.Contains(text, `"s"`) {
		t.Error(text)
	}
}
