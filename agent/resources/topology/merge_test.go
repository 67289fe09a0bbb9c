package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monopod/agent/resources/numa/numatest"
)

// hints parses "0* 1 0,1": sets of nodes; * marks preferred ones, "-" is any node, "none" an empty list.
func hints(text string) []Hint {
	out := []Hint{}
	for _, word := range strings.Fields(text) {
		if word == "none" {
			continue
		}
		h := Hint{Preferred: strings.HasSuffix(word, "*")}
		for id := range strings.SplitSeq(strings.TrimSuffix(word, "*"), ",") {
			if n, err := strconv.Atoi(id); err == nil {
				h.Nodes |= NewNodes(n)
			}
		}
		out = append(out, h)
	}
	return out
}

func (h Hint) word() string {
	text := h.Nodes.String()
	if text == "" {
		text = "-"
	}
	if h.Preferred {
		text += "*"
	}
	return text
}

func TestDecide(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		lists []string // one for each resource
		best  string   // result of best-effort, and of restricted if it is preferred
		one   string   // result of single-numa-node; empty: rejected
	}{
		{"no preference", nil, "0,1*", "-*"},
		{"one resource, both nodes preferred", []string{"0* 1* 0,1"}, "0*", "0*"},
		{"common preferred node", []string{"0* 1* 0,1", "1* 0,1"}, "1*", "1*"},
		{"different preferred nodes", []string{"0* 0,1", "1* 0,1"}, "0", ""},
		{"both need two", []string{"0,1*", "0,1*"}, "0,1*", ""},
		{"one needs two", []string{"0,1*", "0* 1* 0,1"}, "0,1", ""},
		{"no preferred hint", []string{"0,1"}, "0,1", ""},
		{"preferred hint without nodes", []string{"-*", "1*"}, "1*", "1*"},
		{"one empty list", []string{"none", "0*"}, "0", ""},
		{"only an empty list", []string{"none"}, "0,1", ""},
		{"no common node", []string{"0", "1"}, "0,1", ""},
	} {
		var lists [][]Hint
		for _, l := range c.lists {
			lists = append(lists, hints(l))
		}
		answer := map[string][]Hint{}
		for i, l := range lists {
			answer[fmt.Sprint(i)] = l
		}
		p := newNodeSets(numatest.Shape{Sockets: 2, Nodes: 1, Cores: 1, Threads: 1}.Machine(t), false)
		best, ok := p.decide(BestEffort, collect([]map[string][]Hint{answer}))
		if best.word() != c.best || !ok {
			t.Errorf("%s: best-effort %s %v, want %s", c.name, best.word(), ok, c.best)
		}
		if h, ok := p.decide(Restricted, collect([]map[string][]Hint{answer})); h != best || ok != best.Preferred {
			t.Errorf("%s: restricted %s %v, want %s", c.name, h.word(), ok, c.best)
		}
		h, ok := p.decide(SingleNode, collect([]map[string][]Hint{answer}))
		if ok != (c.one != "") || ok && h.word() != c.one {
			t.Errorf("%s: single-numa-node %s %v, want %q", c.name, h.word(), ok, c.one)
		}
	}
}

func TestBeats(t *testing.T) {
	t.Parallel()
	p := newNodeSets(numatest.Shape{Sockets: 2, Nodes: 2, Cores: 1, Threads: 1}.Machine(t), false)
	for _, c := range []struct {
		better, worse string
		wanted        int
	}{
		{"0,1*", "0", 1},
		{"0*", "0,1*", 2},
		{"0*", "1*", 1},
		{"0,1", "0", 2},
		{"0,1", "0,1,2", 2},
		{"0,1", "0,2", 2},
		{"0,1,2", "0,1,2,3", 2},
		{"0", "0,1,2", 2},
		{"0,1", "0", 3},
	} {
		better, worse := hints(c.better)[0], hints(c.worse)[0]
		if !p.beats(better, worse, c.wanted) || p.beats(worse, better, c.wanted) {
			t.Errorf("%s does not beat %s with %d nodes wanted", c.better, c.worse, c.wanted)
		}
	}
}

func TestClosest(t *testing.T) {
	t.Parallel()
	m := numatest.Shape{Sockets: 2, Nodes: 2, Cores: 1, Threads: 1}.Machine(t) // nodes 0 and 1 are close, and 2 and 3
	lists := [][]Hint{hints("1,2* 2,3*")}
	for closest, want := range map[bool]string{false: "1,2*", true: "2,3*"} {
		if got := newNodeSets(m, closest).merge(lists); got.word() != want {
			t.Errorf("closest %v: %s, want %s", closest, got.word(), want)
		}
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	n := NewNodes(0, 2, 63)
	if n.String() != "0,2,63" || n.Count() != 3 || !n.Has(63) || n.Has(1) || len(n.Subsets()) != 7 ||
		Nodes(0).Subsets() != nil {
		t.Errorf("nodes %s, count %d, IDs %v, subsets %v", n, n.Count(), n.IDs(), n.Subsets())
	}
	var all []string
	for _, s := range NewNodes(0, 1, 3).Subsets() {
		all = append(all, s.String())
	}
	slices.Sort(all)
	if got := strings.Join(all, " "); got != "0 0,1 0,1,3 0,3 1 1,3 3" {
		t.Error("subsets: ", got)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cfg  Config
		want string // part of the error; empty: none
	}{
		{Config{None, ScopeContainer, nil}, ""},
		{Config{SingleNode, ScopePod, map[string]string{optionClosest: "true", optionNodes: "16"}}, ""},
		{Config{"x", ScopePod, nil}, `--topology-manager-policy: unknown policy "x"`},
		{Config{None, "node", nil}, `--topology-manager-scope: "node" is neither`},
		{Config{None, ScopePod, map[string]string{"x": "1"}}, `unknown option "x"; known: max-allowable-numa-nodes`},
		{Config{None, ScopePod, map[string]string{optionClosest: "x"}},
			`prefer-closest-numa-nodes: "x" is neither true nor false`},
		{Config{None, ScopePod, map[string]string{optionNodes: "7"}},
			`max-allowable-numa-nodes: "7" is not a number from 8 to 64`},
	} {
		if err := c.cfg.Check(); c.want == "" && err != nil || c.want != "" && !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%+v: error %v", c.cfg, err)
		}
	}
}

func TestTooManyNodes(t *testing.T) {
	t.Parallel()
	m := numatest.Shape{Sockets: 3, Nodes: 3, Cores: 1, Threads: 1}.Machine(t)
	if _, err := New(Deps{Machine: m}, Config{Policy: Restricted}); err == nil ||
		!strings.Contains(err.Error(), "unsupported on machines with more than 8 NUMA nodes, this one has 9") {
		t.Error(err)
	}
}
