package sliceset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func owner() Owner {
	return Owner{
		Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}},
		Kind:   corev1.SchemeGroupVersion.WithKind("Service"), Labels: Labels(nil, "web", "me", false),
	}
}

// of returns a slice whose endpoints are letters; a capital letter is an endpoint that is not ready.
func of(name, endpoints string, change ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s := owner().slice(group(endpoints), group(endpoints).Endpoints)
	s.Name = name
	for _, f := range change {
		f(s)
	}
	return s
}

func group(endpoints string) Group {
	g := Group{Family: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(80)), Protocol: new(corev1.ProtocolTCP)}}}
	for _, c := range endpoints {
		g.Endpoints = append(g.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{strings.ToLower(string(c))},
			Conditions: discoveryv1.EndpointConditions{Ready: new(strings.ToLower(string(c)) == string(c))},
		})
	}
	return g
}

// shown formats a slice as its name and its endpoints.
func shown(s *discoveryv1.EndpointSlice) string {
	text := s.Name + ":"
	for _, e := range s.Endpoints {
		c := e.Addresses[0]
		if !*e.Conditions.Ready {
			c = strings.ToUpper(c)
		}
		text += c
	}
	return text
}

func list(all []*discoveryv1.EndpointSlice) string {
	var out []string
	for _, s := range all {
		out = append(out, shown(s))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestPlan(t *testing.T) {
	t.Parallel()
	type all = []*discoveryv1.EndpointSlice
	stranger := func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0].UID = "old" }
	v6 := func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 }
	ports := func(s *discoveryv1.EndpointSlice) { s.Ports = nil }
	relabelled := func(s *discoveryv1.EndpointSlice) { s.Labels = map[string]string{"a": "b"} }
	for _, c := range []struct {
		name                   string
		existing               all
		want                   string
		create, update, delete string
	}{
		{"the first", nil, "ab", ":ab", "", ""},
		{"as many as needed", nil, "abcdefghij", ":abcd :efgh :ij", "", ""},
		{"nothing to do", all{of("x", "ab")}, "ba", "", "", ""},
		{"one becomes unready", all{of("x", "abcd"), of("y", "ef")}, "abcDef", "", "x:abcD", ""},
		{"one less", all{of("x", "abcd"), of("y", "ef")}, "abdef", "", "x:abd", ""},
		{"one more fits the fullest", all{of("x", "a"), of("y", "bcd")}, "abcde", "", "y:bcde", ""},
		{"one more fits none", all{of("x", "abcd"), of("y", "efgh")}, "abcdefghi", ":i", "", ""},
		{"two more fit one slice together", all{of("x", "abc"), of("y", "de")}, "abcdefg", "", "y:defg", ""},
		{"two more fit none together", all{of("x", "abc"), of("y", "def")}, "abcdefgh", ":gh", "", ""},
		{"a replaced one stays in its slice", all{of("x", "abcd"), of("y", "ef")}, "abcefg", "", "x:abcg", ""},
		{"a slice becomes empty", all{of("x", "abcd"), of("y", "e")}, "abcd", "", "", "y:e"},
		{"a slice's endpoints are all replaced", all{of("x", "ab")}, "cd", "", "x:cd", ""},
		{"all are removed", all{of("x", "ab"), of("y", "c")}, "", "", "x:", "y:c"},
		{"an empty one stays", all{of("x", "")}, "", "", "", ""},
		{"an empty one is used", all{of("x", "")}, "a", "", "x:a", ""},
		{"of an earlier owner", all{of("x", "ab", stranger)}, "ab", ":ab", "", "x:ab"},
		{"of another family", all{of("x", "ab", v6)}, "ab", ":ab", "", "x:ab"},
		{"with other ports", all{of("x", "ab", ports)}, "ab", "", "x:ab", ""},
		{"with other labels", all{of("x", "ab", relabelled), of("y", "cd")}, "abcd", "", "x:ab", ""},
		{"one endpoint in two slices", all{of("x", "ab"), of("y", "bc")}, "abc", "", "y:c", ""},
	} {
		p := Make(owner(), c.existing, []Group{group(c.want)}, Options{Max: 4})
		if list(p.Create) != c.create || list(p.Update) != c.update || list(p.Delete) != c.delete {
			t.Errorf("%s: create %q, update %q, delete %q; want %q, %q, %q", c.name, list(p.Create), list(p.Update),
				list(p.Delete), c.create, c.update, c.delete)
		}
	}
}

func TestLabels(t *testing.T) {
	t.Parallel()
	own := map[string]string{"a": "b", discoveryv1.LabelManagedBy: "somebody", discoveryv1.LabelServiceName: "another",
		corev1.IsHeadlessService: "x"}
	if got := fmt.Sprint(Labels(own, "web", "me",
		false)); got != "map[a:b endpointslice.kubernetes.io/managed-by:me kubernetes.io/service-name:web]" {
		t.Error(got)
	}
	if got := Labels(own, "web", "me", true)[corev1.IsHeadlessService]; got != "" {
		t.Error(got)
	}
}

// After random changes, the slices contain exactly the desired endpoints, no slice exceeds the maximum, and n changes
// of endpoints write at most n slices.
func TestPlansConverge(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 2))
		var existing []*discoveryv1.EndpointSlice
		next := 0
		letters := map[rune]bool{}
		for step := range 60 {
			changes := 1 + r.IntN(3)*r.IntN(6)
			for range changes {
				c := 'a' + rune(r.IntN(26))
				letters[c] = !letters[c]
			}
			var want string
			for c := range letters {
				if letters[c] {
					want += string(c)
				}
			}
			p := Make(owner(), existing, []Group{group(want)}, Options{Max: 5})
			if n := len(p.Create) + len(p.Update) + len(p.Delete); n > changes {
				t.Fatalf("seed %d, step %d: %d changes wrote %d slices", seed, step, changes, n)
			}
			existing = slices.Concat(p.Unchanged, p.Update)
			for _, s := range p.Create {
				next++
				s.Name, s.UID, s.ResourceVersion = strconv.Itoa(next), types.UID(strconv.Itoa(next)), "1"
				existing = append(existing, s)
			}
			var have []string
			for _, s := range existing {
				if len(s.Endpoints) > 5 {
					t.Fatalf("seed %d, step %d: a slice has %d endpoints, want at most 5", seed, step, len(s.Endpoints))
				}
				for _, e := range s.Endpoints {
					have = append(have, e.Addresses[0])
				}
			}
			slices.Sort(have)
			expected := strings.Split(want, "")
			slices.Sort(expected)
			if !slices.Equal(have, expected) {
				t.Fatalf("seed %d, step %d: %v, want %v", seed, step, have, expected)
			}
		}
	}
}
